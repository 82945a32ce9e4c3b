"""``cut-head``: a decoder's program ends at the input of its head over the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.lowering.token_rows import kind_of

HIDDEN = "hidden"
"""Name of the output that takes the place of the logits: the input of the head."""
_AFTER = ("scale", "add_constant", "affine", "chebyshev", *ACTIVATIONS)
"""What a head may compute after its linear layer: a function of each logit alone."""


@dataclass(frozen=True)
class CutHead(Pass):
    """End a program at the input of its head, which the client computes in the clear.

    The head is the last linear layer, and functions of each logit after it (a bias, a factor, a
    soft cap). The output ``hidden`` takes the place of the logits. The head of an nn module is
    :func:`head_of`; on the cut program's output it gives the logits of the whole program.
    """

    name = "cut-head"
    takes = ("nn", "poly")
    keeps = (MAGNITUDES, NOISE_GAINS)

    def run(self, module: Module, report: Report) -> Module:
        """Nn or poly module to a module of the same level.

        Raises:
            AtlasError: the program has several outputs, or its output is made by no head.
        """
        head, rewriter = _head(module), Rewriter(module)
        output = head[-1]
        for op in module.ops:
            if op is output:
                operands = [rewriter.values[head[0].operands[0]]]
                rewriter.copy(op, operands, {"name": HIDDEN})
            else:
                rewriter.copy(op)
        result = without_dead_ops(rewriter.module)
        report.say(f"{output.attributes['name']} is left to the client: {head[0].location}")
        return result


def head_of(module: Module) -> Module:
    """The head that :class:`CutHead` takes off an nn module, as a module of the client: from the
    output ``hidden`` to the logits, without approximations.

    Raises:
        AtlasError: as the pass.
    """
    head, made = _head(module), Module(module.name, "nn", symbols=dict(module.symbols))
    shape = list(head[0].operands[0].tensor.shape)
    given = {"name": HIDDEN, "shape": shape, "side": "client", "dtype": "f64"}
    value: Value = made.add("nn.input", [], given, head[0].location, HIDDEN)
    for op in head:
        attributes = {n: a for n, a in op.attributes.items() if n not in ("approximation", "basis")}
        name = op.result.name if op.result is not None else None
        value = made.add(op.name, [value], attributes, op.location, name)
    made.symbols = made.arrays_used()
    return made


def is_tied(module: Module) -> bool:
    """Whether the matrix of an nn module's head is the table of an embedding, which the client has
    anyway. A model without a head that the client can compute has no such matrix.
    """
    try:
        weight = _head(module)[0].attributes["weight"]
    except AtlasError:
        return False
    return any(op.attributes["table"] == weight for op in module.ops if op.name == "nn.embedding")


def _head(module: Module) -> list[Op]:
    """The ops of the head: a linear layer, functions of its results, and the output."""
    states = {op.attributes["name"] for op in module.inputs if op.attributes.get("state")}
    outputs = [op for op in module.outputs if op.attributes["name"] not in states]
    if len(outputs) != 1:
        names = ", ".join(op.attributes["name"] for op in outputs)
        raise _refused(outputs[0] if outputs else None, f"the model has the outputs {names}")
    (output,), users = outputs, module.users()
    head = [output]
    while kind_of(head[0]) != "linear":
        before = head[0].operands[0].op
        if kind_of(before) not in ("linear", *_AFTER):
            raise _refused(before, f"the output is made by {before.name}")
        if len(users[before.value]) > 1:
            raise _refused(before, f"the result of {before.name} is used elsewhere too")
        head.insert(0, before)
    return head


def _refused(op: Op | None, why: str) -> AtlasError:
    return AtlasError(
        "the head cannot run on the client",
        where=op.location if op is not None else "",
        why=f"{why}; a head is a linear layer, and functions of each logit after it",
        remedy="use --head server",
    )
