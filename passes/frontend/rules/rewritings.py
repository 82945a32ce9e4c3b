"""How to write an op without a rule by ops that have one.

A test compiles both sides of each line of the table, and compares them. The names in the code are
those of a forward: hidden states ``h`` and ``k`` [batch, tokens, features], an input ``x`` of the
same shape, ``ids``, and buffers and inputs that ``where`` explains.
"""

from __future__ import annotations

from typing import NamedTuple


class Rewriting(NamedTuple):
    """One line of the table.

    Attributes:
        instead: code that is refused.
        write: code with the same result.
        where: what its other names stand for; empty without such.
    """

    instead: str
    write: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.instead} is {self.write}" + (f", with {self.where}" if self.where else "")


_COMPARED = (
    Rewriting("h = h * (h > 0)", "h = torch.relu(h)"),
    Rewriting("h = h * (x > 0)", "h = h * positive", "the input positive, x > 0 as 0 and 1"),
)
_MAXIMUM = Rewriting(
    "h = h.amax(1)", "h = reduce(torch.maximum, h.unbind(1))", "functools.reduce; of few tokens"
)
_MINIMUM = Rewriting(
    "h = h.amin(1)", "h = reduce(torch.minimum, h.unbind(1))", "functools.reduce; of few tokens"
)
_POOLED = Rewriting("h = F.adaptive_avg_pool1d(h.mT, 1)[..., 0]", "h = h.mean(1)")
_ASSIGNED = Rewriting(
    "h[..., 2:4] = k[..., 2:4]",
    "h = h * kept + k * (1 - kept)",
    "a buffer kept of zeros and ones, here 0 from 2 to 3",
)
_MEAN, _SUM = (f"of mode {mode}, of texts of one length" for mode in ("mean", "sum"))
_CLIENT = "which the client computes"
REWRITINGS = {
    "index_put": (
        Rewriting(
            "h[:, :, places] = 0", "h = h * kept", "a buffer kept of zeros and ones, 0 at places"
        ),
    ),
    **dict.fromkeys(("slice_scatter", "select_scatter"), (_ASSIGNED,)),
    "embedding_bag": (
        Rewriting("h = means(ids)", "h = table(ids).mean(1)", f"nn.Embedding; {_MEAN}"),
        Rewriting("h = sums(ids)", "h = table(ids).sum(1)", f"nn.Embedding; {_SUM}"),
    ),
    "cos": (
        Rewriting("h = h + torch.cos(x)", "h = h + turn", f"the input turn, cos(x), {_CLIENT}"),
    ),
    "sin": (
        Rewriting("h = h + torch.sin(x)", "h = h + turn", f"the input turn, sin(x), {_CLIENT}"),
    ),
    **dict.fromkeys(("gt", "ge", "lt", "le"), _COMPARED),
    "masked_fill": (
        Rewriting(
            "h = h.masked_fill(x > 0, 0)",
            "h = h * (1 - positive)",
            "the input positive, x > 0 as 0 and 1",
        ),
    ),
    **dict.fromkeys(("max", "amax"), (_MAXIMUM,)),
    **dict.fromkeys(("min", "amin"), (_MINIMUM,)),
    "prod": (Rewriting("h = h.prod(1)", "h = reduce(torch.mul, h.unbind(1))", "functools.reduce"),),
    "cumsum": (
        Rewriting("h = h.cumsum(-1)", "h = h @ upper", "a buffer upper, torch.ones(n, n).triu()"),
    ),
    **dict.fromkeys(("avg_pool1d", "adaptive_avg_pool1d", "_adaptive_avg_pool2d"), (_POOLED,)),
}
"""Name of an op of aten -> how its result is computed by ops that have a rule."""
