"""Entry of the frontend: from a torch module or an exported program to an nn module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from atlasc.ir.bounds import as_name
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.verifier import verify
from atlasc.passes.frontend import blocks
from atlasc.passes.frontend import graph as fx
from atlasc.passes.frontend.import_export import import_graph
from atlasc.passes.frontend.importer import Importer

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
            with blocks.shortened(module, repeated):
                short = _import(export(module, example_inputs), example_inputs, name, output)
            if (whole := blocks.extend(short, repeated)) is not None:
                verify(whole)
                return whole
    return _import(export(module, example_inputs), example_inputs, name, output)


def _import(
    program: ExportedProgram, example_inputs: Mapping[str, Example], name: str, output: str | None
) -> Module:
    """The verified nn module of an exported program."""
    _check_shapes(program, example_inputs)
    graph, results = fx.inline_regions(program.graph_module)
    holders = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    inputs = {holders[key]: key for key in _user_inputs(program)}
    stored = {holders[key]: value for key, value in _stored(program).items() if key in holders}
    label, result = _pick(_output_names(program), results, output)
    imported = import_graph(Importer(graph, inputs, stored, name), result, label)
    verify(imported)
    return imported


def export(module: torch.nn.Module, example_inputs: Mapping[str, Example]) -> ExportedProgram:
    """torch.export of a model for fixed shapes, without autograd and key/value cache.

    Raises:
        AtlasError: unknown inputs, or torch.export fails.
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
    tensors = {key: _example(key, value, first) for key, value in example_inputs.items()}
    with _without_cache(module), torch.no_grad():
        try:
            return torch.export.export(module, (), tensors, strict=False)
        except AtlasError:
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise AtlasError(
                f"torch.export cannot trace {type(module).__name__}",
                why=f"{type(error).__name__}: {reason}",
                remedy="check the names and shapes of the inputs (the model takes "
                f"{', '.join(parameters)}); control flow that depends on values of tensors "
                "cannot be compiled",
            ) from error


def _example(name: str, example: Example, like: torch.Tensor) -> torch.Tensor:
    """Example tensor of an input, on the device of the model's parameters."""
    import torch

    if isinstance(example, ShapeSpec):
        dtype = np.int64 if example.dtype == "i64" else np.float32
        example = np.full(example.shape, name == fx.PUBLIC_INPUT, dtype)
    tensor = torch.from_numpy(np.ascontiguousarray(example))
    if tensor.is_floating_point():
        return tensor.to(like.device, like.dtype)
    return tensor.to(like.device, torch.int64)


@contextmanager
def _without_cache(module: torch.nn.Module) -> Iterator[None]:
    """Key/value caches off while exporting; they would be outputs of their own."""
    config = getattr(module, "config", None)
    wanted = {"use_cache": False, "return_dict": True, "output_attentions": False}
    saved = {key: getattr(config, key) for key in wanted if hasattr(config, key)}
    training = module.training
    try:
        for key in saved:
            setattr(config, key, wanted[key])
        module.eval()
        yield
    finally:
        module.train(training)
        for key, value in saved.items():
            setattr(config, key, value)


def _user_inputs(program: ExportedProgram) -> list[str]:
    """Names of the tensor inputs, which are those of their placeholders."""
    tensors = {node.name for node in program.graph.nodes if hasattr(node.meta.get("val"), "shape")}
    return [key for key in program.graph_signature.user_inputs if key in tensors]


def _stored(program: ExportedProgram) -> dict[str, tuple[str, torch.Tensor]]:
    """Path and tensor of parameters, buffers and lifted constants by placeholder name."""
    signature = program.graph_signature
    paths = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.constants, **program.state_dict}
    return {key: (path, values[path]) for key, path in paths.items()}


def _check_shapes(program: ExportedProgram, example_inputs: Mapping[str, Example]) -> None:
    """Raise AtlasError when an exported program was made for other inputs."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    wanted = {key: fx.shape(nodes[key]) for key in _user_inputs(program)}
    for key, example in example_inputs.items():
        if wanted.get(key) != tuple(example.shape):
            raise AtlasError(
                f"input {key!r} has shape {tuple(example.shape)}",
                why=f"the program was exported for {wanted}",
                remedy="give inputs of these shapes, or export the model for yours",
            )


def _output_names(program: ExportedProgram) -> list[str] | None:
    """Names of the outputs when the model returns a dictionary (HuggingFace models do)."""
    spec = program.call_spec.out_spec
    context = getattr(spec, "context", None)
    if isinstance(context, list | tuple) and all(isinstance(key, str) for key in context):
        return [as_name(key) for key in context] or None
    return None


def _pick(names: list[str] | None, results: Any, output: str | None) -> tuple[str, fx.Node]:
    """Name and node of the wanted output."""
    nodes = list(results) if isinstance(results, list | tuple) else [results]
    if names is None or len(names) != len(nodes):
        names = ["output"] if len(nodes) == 1 else [f"output{i}" for i in range(len(nodes))]
    table = {key: node for key, node in zip(names, nodes, strict=True) if fx.is_node(node)}
    if output is None:
        output = next((key for key in PREFERRED_OUTPUTS if key in table), next(iter(table), None))
    if output is None or output not in table:
        raise AtlasError(
            f"the model has no output {output!r}", remedy=f"its outputs: {', '.join(table)}"
        )
    return output, table[output]
