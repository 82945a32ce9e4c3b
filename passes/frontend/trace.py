"""Entry of the frontend: from a torch module or an exported program to an nn module.

It walks over the exported graph three times: to find what each node depends on
(``graph.classify``); backwards from the outputs, to find the needed nodes and those that form one
nn op (``patterns``); and forwards, to emit the ops.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Value
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.verifier import verify
from atlasc.passes.framework.rewritings import REWRITINGS
from atlasc.passes.frontend import blocks
from atlasc.passes.frontend.exported import graph as fx
from atlasc.passes.frontend.exported.constants import refuse_random
from atlasc.passes.frontend.exported.decompose import (
    Unsupported,
    in_simpler_ops,
    with_fixed_shapes,
    without_changes_in_place,
)
from atlasc.passes.frontend.exported.failures import untraceable, without_dumps
from atlasc.passes.frontend.exported.locations import fill_lines
from atlasc.passes.frontend.exported.padding import UNNAMED, without_padding
from atlasc.passes.frontend.exported.rope import settled
from atlasc.passes.frontend.exported.states import (
    refuse_states,
    returned,
    untouched,
    without_grown_buffers,
    writes,
)
from atlasc.passes.frontend.heads import without_common_maps
from atlasc.passes.frontend.importer import Emit, Importer, Missing, Refusal
from atlasc.passes.frontend.movement import in_usual_order
from atlasc.passes.frontend.rules import aten_rules, cuts
from atlasc.passes.frontend.rules.outputs import Note, choose, final_function, named_outputs
from atlasc.passes.frontend.rules.patterns import find
from atlasc.passes.frontend.widths import with_equal_widths
from atlasc.passes.frontend.zeroed import without_zeros

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class ShapeSpec:
    """Shape (batch first) and dtype of an input without an example."""

    shape: tuple[int, ...]
    dtype: Literal["i64", "f32"] = "i64"


Example = np.ndarray | ShapeSpec
NUMBER = "a number of Python is read from private data; let it stay a tensor"


class _Wanted(NamedTuple):
    """The wanted outputs of a model, and the note for the others; see ``trace``."""

    outputs: str | None
    note: Note


def trace(
    module: torch.nn.Module | ExportedProgram,
    example_inputs: Mapping[str, Example],
    *,
    name: str,
    outputs: str | None = None,
    note: Note = lambda headline, details: None,
) -> Module:
    """Trace a model to the nn level.

    Args:
        module: a model, or a program that torch.export made from one. Parameters on the meta device
            count as shapes without values (see ``blocks``). Load weights in float32, because
            constants such as rotary tables are folded in the model's own precision.
        example_inputs: arrays or shapes by the name of the forward argument; they fix all shapes.
            ``attention_mask`` becomes a public input, every other one a client input. Where a
            mask is computed from token ids, the result has a public input of that name too.
        name: name of the result.
        outputs: wanted outputs, separated by commas, or ``all``; by default ``logits``, otherwise
            ``sentence_embedding``, ``last_hidden_state`` or the first. Ops for other outputs are
            left out.
        note: called with notes on outputs that are left out, and on the client's final function.

    Returns:
        A verified nn module. Everything before the first Transformer block is on the client; each
        client value that the server reads is encrypted once.

    Raises:
        AtlasError: the model lacks an input or output, torch.export cannot trace the model, some
            ops have no rule (all are named), or a mask has another meaning.
    """
    told: dict[str, str] = {}
    wanted = _Wanted(outputs, told.setdefault)
    traced = _traced(module, example_inputs, name, wanted)
    for headline, details in told.items():
        note(headline, details)
    convolutions = [op for op in traced.ops if op.name == "nn.convolution"]
    if len(convolutions) > 1:
        note(
            f"the client computes {len(convolutions)} convolutions, and what lies between them",
            "  why: they come before the first block and have no rule on encrypted data; their "
            "weights are in the client's part of the program",
        )
    for op in traced.outputs:
        if function := op.attributes.get("function"):
            label = op.attributes["name"]
            note(
                f"{label} ends with {function}, which the client applies to the decrypted numbers",
                f"  why: the program returns the operand of {function}; errors and verdicts refer "
                "to this operand",
            )
    return traced


def _traced(
    module: torch.nn.Module | ExportedProgram,
    example_inputs: Mapping[str, Example],
    name: str,
    wanted: _Wanted,
) -> Module:
    import torch

    if not isinstance(module, torch.nn.Module):
        fixed = with_fixed_shapes(module, _tensors(example_inputs, torch.zeros(0)))
        return _import(fixed, example_inputs, name, wanted)
    repeated = blocks.repeated_blocks(module)
    if repeated is not None:
        # If this fails, tracing the whole model shows the fault with its own block numbers.
        with suppress(AtlasError):
            with repeated.shortened(module):
                short = _import(export(module, example_inputs), example_inputs, name, wanted)
            if (whole := blocks.extend(short, repeated)) is not None:
                verify(whole)
                return whole
    return _import(export(module, example_inputs), example_inputs, name, wanted)


def _tensors(example_inputs: Mapping[str, Example], like: torch.Tensor) -> dict[str, torch.Tensor]:
    """Inputs as tensors on the device of ``like``; floats have its type."""
    import torch

    tensors = {}
    for key, example in example_inputs.items():
        if isinstance(example, ShapeSpec):
            dtype = np.int64 if example.dtype == "i64" else np.float32
            example = np.full(example.shape, key == fx.PUBLIC_INPUT, dtype)
        tensor = torch.tensor(np.ascontiguousarray(example))
        floating = tensor.is_floating_point()
        tensors[key] = tensor.to(like.device, like.dtype if floating else torch.int64)
    return tensors


def export(module: torch.nn.Module, example_inputs: Mapping[str, Example]) -> ExportedProgram:
    """torch.export of a model for fixed shapes, without autograd and key/value cache.

    Raises AtlasError for unknown inputs, and with the reason if torch.export fails.
    """
    import torch

    parameters = inspect.signature(module.forward).parameters
    unknown = sorted(set(example_inputs) - set(parameters))
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if unknown and not open_ended:
        raise AtlasError(
            f"{type(module).__name__} has no input {', '.join(unknown)}",
            remedy=f"its inputs: {', '.join(parameters)}",
        )
    first = next(iter(module.parameters()), torch.zeros(0))
    tensors = _tensors(example_inputs, first)
    # Caches of keys and values would become outputs.
    plain = {"use_cache": False, "return_dict": True, "output_attentions": False}
    training = module.training
    config = getattr(module, "config", None)
    with ExitStack() as held:
        held.enter_context(untouched(module))
        held.enter_context(settled(module, tensors))
        held.enter_context(fx.holding(config, **plain))
        held.enter_context(fx.holding(without_padding(config), pad_token_id=UNNAMED))
        held.enter_context(torch.no_grad())
        held.enter_context(warnings.catch_warnings())
        # What a module keeps in attributes is seen when it is asked beside the program.
        warnings.filterwarnings("ignore", "The tensor attributes? ")
        try:
            with without_dumps():
                return torch.export.export(module.eval(), (), tensors, strict=False)
        except AtlasError:
            raise
        except Exception as error:
            raise untraceable(module, error, parameters) from None
        finally:
            module.train(training)


def _import(
    program: ExportedProgram, example_inputs: Mapping[str, Example], name: str, wanted: _Wanted
) -> Module:
    """The verified nn module of an exported program.

    Ops without a rule are replaced by simpler ops, if torch has a decomposition and these have
    rules.
    """
    without_grown_buffers(program, wanted.note)
    program = without_changes_in_place(program)
    try:
        return _import_once(program, example_inputs, name, wanted)
    except Unsupported as fault:
        for simpler in in_simpler_ops(program, fault):
            try:
                return _import_once(simpler, example_inputs, name, wanted)
            except Unsupported as further:
                fault.targets = further.targets
            except AtlasError:
                break
        raise


def _import_once(
    program: ExportedProgram, example_inputs: Mapping[str, Example], name: str, wanted: _Wanted
) -> Module:
    """The verified nn module of an exported program whose ops all have a rule."""
    signature = program.graph_signature
    tensors = {
        one.name: one for one in program.graph.nodes if hasattr(one.meta.get("val"), "shape")
    }
    taken = {key: fx.shape(tensors[key]) for key in signature.user_inputs if key in tensors}
    for key, example in example_inputs.items():
        if taken.get(key) != tuple(example.shape):
            raise AtlasError(
                f"input {key!r} has shape {tuple(example.shape)}",
                why=f"the program was exported for {taken}",
                remedy="give inputs of these shapes (--batch chooses the first extent), or export "
                "the model for yours",
            )
    paths = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.constants, **program.state_dict}
    graph, results = fx.inline_regions(program.graph_module)
    holders = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    written = writes(program, holders, results)
    inputs = {holders[key]: key for key in taken}
    stored = {holders[key]: (path, values[path]) for key, path in paths.items() if key in holders}
    importer = Importer(graph, inputs, stored, name)
    table = named_outputs(program, importer.same_as(returned(program, results)))
    chosen = {key: table[key] for key in choose(table, wanted.outputs, wanted.note)}
    refuse_states(importer, written, chosen, wanted.note)
    for key, node in chosen.items():
        if importer.kinds[node] != "data":
            raise AtlasError(
                f"the output {key} does not depend on a private input",
                remedy="choose another output; this output is known without encryption",
            )
    imported = _import_graph(importer, chosen)
    importer.name_padding()
    ordered = with_equal_widths(in_usual_order(without_common_maps(imported)))
    ordered = without_zeros(ordered, importer.zeroed)
    verify(ordered)
    return ordered


def _import_graph(importer: Importer, results: Mapping[str, fx.Node]) -> Module:
    """Import everything that some nodes need, and make these nodes the outputs of the given names.

    Raises AtlasError with all ops that have no rule.
    """
    ends = {name: final_function(node) for name, node in results.items()}
    needed, selected = {node for _, node in ends.values()}, dict[Any, Emit]()
    for node in reversed(importer.graph.nodes):
        if node in needed and importer.kinds[node] == "data":
            whole = node in importer.inputs or node in importer.positions
            found = None if whole else find(importer, node)
            plain = partial(_emit, importer, node), _operands(importer, node)
            selected[node], taken = found or plain
            needed.update(taken)
    faults: list[tuple[fx.Node, str]] = []
    for node in importer.graph.nodes:
        if node in selected:
            importer.node = node
            try:
                importer.values[node] = selected[node]()
            except Missing:
                continue
            except Refusal as refusal:
                faults.append((node, str(refusal)))
    if not faults and any(node not in importer.values for _, node in ends.values()):
        faults = [(_unread(importer, selected), "")]
    if faults:
        raise _unsupported(faults)
    module = importer.module
    module.ops.sort(key=lambda op: op.name != "nn.input")  # stable: inputs come first
    for name, (function, node) in ends.items():
        attributes = {"name": name} | ({} if function is None else {"function": function})
        module.add("nn.output", [importer.on_server(importer.values[node])], attributes)
    fill_lines(module)
    return module


def _unread(importer: Importer, selected: Collection[fx.Node]) -> fx.Node:
    """The first op without a value, where none was refused: one of its results is not read."""
    left = (n for n in importer.graph.nodes if n in selected and n not in importer.values)
    node = next(node for node in left if fx.packet(node) not in cuts.SPLITS)
    return node.args[0] if "getitem" in str(node.target) else node


def _operands(importer: Importer, node: fx.Node) -> list[fx.Node]:
    counted = importer.positions.get(node)
    return node.all_input_nodes if counted is None else [counted.source]


def _emit(importer: Importer, node: fx.Node) -> Value:
    if fx.packet(node) in cuts.SPLITS:
        raise Missing  # its parts are read one by one
    if node in importer.inputs:
        return importer.input(node)
    if (counted := importer.positions.get(node)) is not None:
        source = importer.input(counted.source)
        return importer.add("nn.position_ids", source, padding=counted.padding)
    rule = aten_rules.ATEN_RULES.get(fx.target(node))
    if rule is not None:
        return rule(importer, *fx.arguments(node).values())
    if "getitem" in str(node.target):
        return cuts.part(importer, *node.args)
    # Of what is refused: a cast of a comparison, or what Python computes from a number.
    if fx.packet(node) in fx.COPIES or not hasattr(node.target, "_schema"):
        for operand in node.all_input_nodes:
            importer.value(operand)
    refuse_random(node)
    raise Refusal(NUMBER if fx.packet(node) == "item" else "")


def _rewriting(faults: Sequence[tuple[fx.Node, str]]) -> str:
    """How to write some ops by others that can be compiled."""
    reasons: dict[str, str] = {}
    for node, reason in faults:
        reasons.setdefault(fx.packet(node).removesuffix("_") or str(node.target), reason)
    known = dict.fromkeys(line for name in reasons for line in REWRITINGS.get(name, ()))
    left = [name for name in reasons if not reasons[name] and name not in REWRITINGS]
    said = [f"write the same by other ops: {'; '.join(map(str, known))}"] if known else []
    if any(reasons.values()):  # these ops have a rule, for other arguments
        said.append("write the lines named above otherwise, as each reason says")
    if left:
        said.append(
            f"replace {', '.join(left)} by supported ops (linear, matmul, add, mul, reshape, "
            f"transpose, softmax, layer norm, RMS norm, {', '.join(ACTIVATIONS)}), or add a rule "
            "to passes/frontend/rules/aten_rules.py"
        )
    return "; ".join(said)


def _unsupported(faults: Sequence[tuple[fx.Node, str]]) -> Unsupported:
    """One error for all faults; equal ops of one source line share a line of the message."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node, reason in faults:
        op = fx.target(node) or f"{node.op} {node.target}"
        groups.setdefault((op, reason, fx.source_line(node)), []).append(fx.module_path(node))
    lines = []
    for (op, reason, line), paths in groups.items():
        text = f"{op}: {reason}" if reason else op
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        place = f"  ({line})" if line else ""
        lines.append(f"{text}  in {paths[0] or '(top level)'}{more}{place}")
    names = sorted({op for op, _, _ in groups})
    count = "1 op" if len(faults) == 1 else f"{len(faults)} ops"
    error = Unsupported(
        f"{count} of the model cannot be compiled: {', '.join(names)}",
        where=lines if len(lines) > 1 else lines[0],
        why="on encrypted data only sums, products and functions with a rule can be computed",
        remedy=_rewriting(faults),
    )
    error.targets = frozenset(names)
    return error
