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


RESHAPE = "a reshape that is not the splitting or merging of attention heads"
TRANSPOSITION = "a transposition that is not the splitting or merging of attention heads"
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
_EQUAL = "zero, a linear layer of zeros: equal scores"
_FIRST = (
    "zero, a linear layer of zeros, and a buffer first [tokens, 1], their number and then zeros"
)
EQUAL_SCORES = Rewriting(
    "h = h[:, :1].expand_as(h)", "h = (zero(h) @ zero(h).mT).softmax(-1) @ (h * first)", _FIRST
)
"""One token, for all tokens to read."""
_JOINED = (
    Rewriting("h = (h * k[:, :1]).mean(1)", "h = h.mean(1) * k[:, 0]"),
    Rewriting(
        "h = h - h.mean(1, keepdim=True)",
        "h = h - (zero(h) @ zero(h).mT).softmax(-1) @ h",
        _EQUAL,
    ),
    Rewriting(
        "h = h + h[:, :1]", "h = h + (zero(h) @ zero(h).mT).softmax(-1) @ (h * first)", _FIRST
    ),
)
_SPLIT = (
    Rewriting("h = torch.tanh(h.unflatten(-1, (2, 4))).flatten(-2)", "h = torch.tanh(h)"),
    Rewriting(
        "h = (h.unflatten(-1, (2, 4)) + gains).flatten(-2)",
        "h = h + gains.flatten()",
        "a buffer gains [heads, width]",
    ),
)
_MEAN, _SUM = (f"of mode {mode}, of texts of one length" for mode in ("mean", "sum"))
_CLIENT = "which the client computes"
REWRITINGS = {
    "expand_as": (EQUAL_SCORES,),
    "repeat": (Rewriting("h = h[:, :1].repeat(1, 3, 1)", EQUAL_SCORES.write, _FIRST),),
    "einsum": (
        Rewriting(
            "h = torch.einsum('btf,bsf->bts', h, k).softmax(-1) @ h",
            "h = (h @ k.mT).softmax(-1) @ h",
        ),
    ),
    "stack": (Rewriting("h = torch.stack([h, k]).sum(0)", "h = h + k"),),
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
PACKED = {
    **dict.fromkeys(("a sum", "a difference", "a product"), _JOINED),
    "a linear layer of single attention heads": (
        Rewriting(
            "h = one(h.unflatten(-1, (2, 4))).flatten(-2)",
            "h = F.linear(h, torch.block_diag(one.weight, one.weight), one.bias.repeat(2))",
            "one, a linear layer of a head",
        ),
    ),
    "a norm of single attention heads": (
        Rewriting(
            "h = norm(h.unflatten(-1, (2, 4))).flatten(-2)",
            "h = rms((h @ centre).unflatten(-1, (2, 4))).flatten(-2)",
            "nn.RMSNorm(4, eps=norm.eps) as rms, and a buffer centre, "
            "torch.block_diag(*2 * [torch.eye(4) - 1 / 4])",
        ),
    ),
    **dict.fromkeys(
        (
            "an activation of single attention heads",
            "a sum with a constant of single attention heads",
        ),
        _SPLIT,
    ),
    "a mean along another axis than the tokens": (
        Rewriting(
            "h = wide(h.unflatten(-1, (2, 4)).mean(2))",
            "h = wide(h @ average)",
            "a buffer average, torch.eye(4).repeat(2, 1) / 2",
        ),
    ),
    RESHAPE: (
        Rewriting(
            "h = flat(h.flatten(1))",
            "h = sum(layer(h[:, t]) for t, layer in enumerate(layers))",
            "layers, a linear layer for each token: their weights are those of flat, cut",
        ),
        Rewriting("h = h + h.sum(2).unsqueeze(2)", "h = h + h.sum(2, keepdim=True)"),
    ),
    TRANSPOSITION: (
        Rewriting(
            "h = (h.mT @ mix).mT",
            "h = (zero(h) @ zero(h).mT + logs).softmax(-1) @ h",
            f"{_EQUAL}, and a buffer logs, mix.mT.log(): columns that are positive and sum to 1",
        ),
    ),
}
"""What has no packed form, in the words of the refusal -> how it is written by what has one."""


def written(what: str) -> str:
    """What to do about something without a packed form."""
    if what not in PACKED:
        return "use a model without it, or write this part of the model in another way"
    return f"write the same by other ops: {'; '.join(map(str, PACKED[what]))}"
