"""Entry of the frontend: from a torch module or an exported program to an nn module.

Three walks over the exported graph: what each node depends on (``graph.classify``), backwards from
the output which nodes are needed and which of them form one nn op (``patterns``), and forwards to
emit the ops.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from atlasc.ir.bounds import as_name
from atlasc.ir.errors import AtlasError, first_line
from atlasc.ir.module import Module, Value
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.verifier import verify
from atlasc.passes.frontend import blocks
from atlasc.passes.frontend import graph as fx
from atlasc.passes.frontend.aten_rules import ATEN_RULES
from atlasc.passes.frontend.importer import Importer, Missing, Refusal
from atlasc.passes.frontend.patterns import Emit, find

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

PREFERRED_OUTPUTS = ("logits", "last_hidden_state")


@dataclass(frozen=True)
class ShapeSpec:
    """Shape (batch first) and dtype of an input of which no example is at hand."""

    shape: tuple[int, ...]
    dtype: Literal["i64", "f32"] = "i64"


Example = np.ndarray | ShapeSpec


def trace(
    module: torch.nn.Module | ExportedProgram,
    example_inputs: Mapping[str, Example],
    *,
    name: str,
    output: str | None = None,
) -> Module:
    """Trace a model to the nn level.

    Args:
        module: a model, or a program that torch.export made of one. Parameters on the meta device
            are taken as shapes without values (see ``blocks``). Load weights in float32: constants
            such as rotary tables are folded in the model's own precision.
        example_inputs: arrays or shapes by the name of the forward argument; they fix all shapes.
            ``attention_mask`` becomes a public input, every other one a client input.
        name: name of the result.
        output: which output is wanted; default ``logits``, else ``last_hidden_state``, else the
            first one. What only other outputs need is left out.

    Returns:
        A verified nn module. Everything up to the first Transformer block is on the client; each
        value that goes on is encrypted once.

    Raises:
        AtlasError: an input or output that the model does not have, a model that torch.export
            cannot trace, ops without a rule (all at once), or a mask with another meaning.
    """
    import torch

    if not isinstance(module, torch.nn.Module):
        return _import(module, example_inputs, name, output)
    repeated = blocks.repeated_blocks(module)
    if repeated is not None:
        # Where this fails, the whole model shows what is wrong, with its own block numbers.
        with suppress(AtlasError):
            with repeated.shortened(module):
                short = _import(export(module, example_inputs), example_inputs, name, output)
            if (whole := blocks.extend(short, repeated)) is not None:
                verify(whole)
                return whole
    return _import(export(module, example_inputs), example_inputs, name, output)


def export(module: torch.nn.Module, example_inputs: Mapping[str, Example]) -> ExportedProgram:
    """torch.export of a model for fixed shapes, without autograd and key/value cache. An AtlasError
    tells inputs that it does not have, or why torch.export fails.
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
    tensors = {}
    for key, example in example_inputs.items():
        if isinstance(example, ShapeSpec):
            dtype = np.int64 if example.dtype == "i64" else np.float32
            example = np.full(example.shape, key == fx.PUBLIC_INPUT, dtype)
        tensor = torch.from_numpy(np.ascontiguousarray(example))
        floating = tensor.is_floating_point()
        tensors[key] = tensor.to(first.device, first.dtype if floating else torch.int64)
    # Caches of keys and values would be outputs of their own.
    plain = {"use_cache": False, "return_dict": True, "output_attentions": False}
    training = module.training
    with fx.holding(getattr(module, "config", None), **plain), torch.no_grad():
        try:
            return torch.export.export(module.eval(), (), tensors, strict=False)
        except AtlasError:
            raise
        except Exception as error:
            raise AtlasError(
                f"torch.export cannot trace {type(module).__name__}",
                why=f"{type(error).__name__}: {first_line(error)}",
                remedy="check the names and shapes of the inputs (the model takes "
                f"{', '.join(parameters)}); control flow that depends on values of tensors "
                "cannot be compiled",
            ) from error
        finally:
            module.train(training)


def _import(
    program: ExportedProgram, example_inputs: Mapping[str, Example], name: str, output: str | None
) -> Module:
    """The verified nn module of an exported program."""
    signature = program.graph_signature
    tensors = {
        one.name: one for one in program.graph.nodes if hasattr(one.meta.get("val"), "shape")
    }
    wanted = {key: fx.shape(tensors[key]) for key in signature.user_inputs if key in tensors}
    for key, example in example_inputs.items():
        if wanted.get(key) != tuple(example.shape):
            raise AtlasError(
                f"input {key!r} has shape {tuple(example.shape)}",
                why=f"the program was exported for {wanted}",
                remedy="give inputs of these shapes, or export the model for yours",
            )
    paths = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.constants, **program.state_dict}
    graph, results = fx.inline_regions(program.graph_module)
    holders = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    inputs = {holders[key]: key for key in wanted}
    stored = {holders[key]: (path, values[path]) for key, path in paths.items() if key in holders}
    label, result = _pick(program, results, output)
    imported = _import_graph(Importer(graph, inputs, stored, name), result, label)
    verify(imported)
    return imported


def _pick(program: ExportedProgram, results: Any, output: str | None) -> tuple[str, fx.Node]:
    """Name and node of the wanted output. A model that returns a dictionary names its outputs."""
    nodes = list(results) if isinstance(results, list | tuple) else [results]
    names = getattr(program.call_spec.out_spec, "context", None)
    if isinstance(names, list | tuple) and all(isinstance(key, str) for key in names):
        names = [as_name(key) for key in names]
    else:
        names = []
    if len(names) != len(nodes):
        names = ["output"] if len(nodes) == 1 else [f"output{i}" for i in range(len(nodes))]
    table = {key: node for key, node in zip(names, nodes, strict=True) if fx.is_node(node)}
    if output is None:
        output = next((key for key in PREFERRED_OUTPUTS if key in table), next(iter(table), None))
    if output is None or output not in table:
        raise AtlasError(
            f"the model has no output {output!r}", remedy=f"its outputs: {', '.join(table)}"
        )
    return output, table[output]


def _import_graph(importer: Importer, result: fx.Node, output: str) -> Module:
    """Import everything that a node needs, and make it the output. An AtlasError names all ops
    without a rule.
    """
    needed, selected = {result}, dict[Any, Emit]()
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
    if faults:
        raise _unsupported(faults)
    module = importer.module
    module.ops.sort(key=lambda op: op.name != "nn.input")  # stable: inputs come first
    module.add("nn.output", [importer.on_server(importer.values[result])], {"name": output})
    return module


def _operands(importer: Importer, node: fx.Node) -> list[fx.Node]:
    counted = importer.positions.get(node)
    return node.all_input_nodes if counted is None else [counted.ids]


def _emit(importer: Importer, node: fx.Node) -> Value:
    if node in importer.inputs:
        return importer.input(node)
    if (counted := importer.positions.get(node)) is not None:
        return importer.add("nn.position_ids", counted.ids, padding=counted.padding)
    rule = ATEN_RULES.get(fx.target(node))
    if rule is not None:
        return rule(importer, *fx.arguments(node).values())
    if "getitem" in str(node.target):
        raise Missing  # part of the result of an op that has been reported
    known = fx.packet(node) in ACTIVATIONS
    raise Refusal("only its default arguments are understood" if known else "")


def _unsupported(faults: Sequence[tuple[fx.Node, str]]) -> AtlasError:
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
    return AtlasError(
        f"{count} of the model cannot be compiled: {', '.join(names)}",
        where="\n    ".join(["", *lines]) if len(lines) > 1 else lines[0],
        why="encrypted data only knows sums, products and the functions that have a rule",
        remedy="replace these ops in the model by supported ones (linear, matmul, add, mul, "
        "reshape, transpose, softmax, layer norm, RMS norm, "
        f"{', '.join(ACTIVATIONS)}), or add a rule to passes/frontend/aten_rules.py",
    )
