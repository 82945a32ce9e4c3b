"""Zeros that a model writes into padding on the server: left out where nothing reads them."""

from __future__ import annotations

from collections.abc import Sequence

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.ir.scalar_functions import ACTIVATIONS

ZEROED = "nn.zero_padding"
_BY_TOKEN = {
    "nn.linear", "nn.add", "nn.sub", "nn.mul", "nn.scale", "nn.add_constant", "nn.layer_norm",
    "nn.rms_norm", "nn.reshape", "nn.transpose", "nn.repeat", "nn.rotary", "nn.output", ZEROED,
    *(f"nn.{name}" for name in ACTIVATIONS),
}  # fmt: skip


def without_zeros(module: Module, places: Sequence[str]) -> Module:
    """A module in the usual order that writes no zeros into padding on the server, where padding
    is masked in all that mixes tokens. What an answer has at padding then differs: nobody reads it.

    Args:
        module: the module.
        places: where the model writes zeros, for the message.

    Raises:
        AtlasError: an op after the zeros would read padding; it is named.
    """
    zeroed = [op for op in module.ops if op.name == ZEROED and op.value.tensor.side == "server"]
    if not zeroed:
        return module
    changed = {op.value for op in zeroed}
    for op in module.ops:
        if changed.isdisjoint(op.operands):
            continue
        if not _ignores_padding(op):
            raise AtlasError(
                "zeros that a model writes into padding are read",
                where=places[0] if len(places) == 1 else places,
                why=f"{op.name} computes with padding"
                + (f" in {op.location}" if op.location else "")
                + ", and only the client can write there, before the first block",
                remedy="mask the keys of attention, and take the mean of the tokens that the mask "
                "keeps: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
            )
        if op.result is not None:
            changed.add(op.value)
    rewriter = Rewriter(module)
    for op in module.ops:
        if op in zeroed:
            rewriter.values[op.value] = rewriter.operands(op)[0]
        else:
            rewriter.copy(op)
    return without_dead_ops(rewriter.module)


def _ignores_padding(op: Op) -> bool:
    """Whether no token of an op's result depends on padding, if none of its operands' does.

    The first token counts as one of the text.
    """
    match op.name:
        case "nn.softmax" | "nn.mean":
            return len(op.operands) > 1
        case "nn.matmul":
            weights = op.operands[0].op
            masked = weights.name == "nn.softmax" and len(weights.operands) > 1
            return masked or bool(op.attributes["transpose_b"])
        case "nn.select":
            return bool(op.attributes["axis"] == 1 and op.attributes["index"] == 0)
    return op.name in _BY_TOKEN
