"""A table of small modules, as users write them. Each maps x [2, 4, 8] to one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

BATCH, TOKENS, FEATURES = 2, 4, 8
Form = Callable[["Parts", Any], Any]


class Parts(nn.Module):
    """Two linear layers, a norm, attention, and a form that puts them together."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.head, self.norm = nn.Linear(FEATURES, 3), nn.LayerNorm(FEATURES)
        self.attention = nn.MultiheadAttention(FEATURES, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(FEATURES, 2, 16, batch_first=True)
        self.encoders = nn.TransformerEncoder(self.encoder, 2)
        self.norm_first = nn.TransformerEncoderLayer(
            FEATURES, 2, 16, batch_first=True, norm_first=True, activation="gelu"
        )
        self.tokens_first = nn.TransformerEncoder(nn.TransformerEncoderLayer(FEATURES, 2, 16), 1)
        self.drops = nn.ModuleList([nn.Dropout(0.5), nn.Dropout1d(0.5), nn.AlphaDropout(0.5)])
        self.register_buffer("table", torch.rand(TOKENS, FEATURES))
        self.register_buffer("matrix", torch.rand(TOKENS, TOKENS))
        self.form = form

    def forward(self, x):
        return self.form(self, x)


def _in_place(m: Parts, x: Any) -> Any:
    h = m.a(x)
    h *= 2
    h += 1
    h -= x
    h /= 4
    return h.add_(1).mul_(0.5).sub_(x).div_(3)


FORMS: dict[str, Form] = {
    "x * 2": lambda m, x: m.a(x * 2),
    "2 * x": lambda m, x: m.a(2 * x),
    "x * 2 after": lambda m, x: m.a(x) * 2,
    "x / 2": lambda m, x: m.a(x) / 2,
    "x // 2": lambda m, x: m.a(x) // 2,
    "2 / x": lambda m, x: 2 / m.a(x),
    "x - 1": lambda m, x: m.a(x) - 1,
    "1 - x": lambda m, x: 1 - m.a(x),
    "1 - x alpha": lambda m, x: torch.rsub(m.a(x), m.b(x), alpha=2),
    "x - y": lambda m, x: torch.sub(m.a(x), m.b(x), alpha=3),
    "y - x constant": lambda m, x: m.table - m.a(x),
    "table * x": lambda m, x: m.table * m.a(x),
    "x / table": lambda m, x: m.a(x) / (1 + m.table),
    "table / x": lambda m, x: m.table / m.a(x),
    "2 ** x": lambda m, x: 2 ** m.a(x),
    "x ** 2": lambda m, x: m.a(x) ** 2,
    "x ** 0": lambda m, x: m.a(x) ** 0,
    "x ** 3.0": lambda m, x: m.a(x) ** 3.0,
    "x ** 0.5": lambda m, x: m.a(x) ** 0.5,
    "x ** 5": lambda m, x: m.a(x) ** 5,
    "x ** y": lambda m, x: m.a(x) ** m.b(x),
    "-x": lambda m, x: -m.a(x),
    "+x": lambda m, x: +m.a(x),
    "in place": _in_place,
    "sum": lambda m, x: m.a(x).sum(1),
    "sum dim=-2": lambda m, x: torch.sum(m.a(x), dim=-2),
    "sum keepdim": lambda m, x: m.a(x).sum(dim=(1,), keepdim=True),
    "sum two": lambda m, x: m.a(x).sum((1, 2)),
    "sum all": lambda m, x: m.a(x).sum(),
    "mean": lambda m, x: m.a(x).mean(1),
    "mean dim=(1,)": lambda m, x: m.a(x).mean(dim=(1,)),
    "mean two": lambda m, x: m.a(x).mean(dim=(-1, 1)),
    "mean all": lambda m, x: m.a(x).mean(),
    "mean keepdim": lambda m, x: m.a(x).mean(-2, keepdim=True),
    "mean of batch": lambda m, x: m.a(x).mean(0),
    "mean features": lambda m, x: m.a(x).mean(-1),
    "var": lambda m, x: m.a(x).var(-1),
    "max": lambda m, x: m.a(x).max(1).values,
    "amax": lambda m, x: m.a(x).amax(1),
    "abs": lambda m, x: m.a(x).abs(),
    "clamp": lambda m, x: m.a(x).clamp(0, 1),
    "exp": lambda m, x: m.a(x).exp(),
    "cumsum": lambda m, x: m.a(x).cumsum(1),
    "clone": lambda m, x: m.a(x).clone(),
    "to float": lambda m, x: m.a(x).to(torch.float32),
    "double": lambda m, x: m.a(x).double(),
    "to like": lambda m, x: m.a(x).to(x),
    "type_as": lambda m, x: m.a(x).type_as(x),
    "contiguous": lambda m, x: m.a(x).transpose(1, 2).contiguous().transpose(1, 2).contiguous(),
    "detach": lambda m, x: m.a(x).detach(),
    "to int": lambda m, x: m.a(x).to(torch.int64),
    "round": lambda m, x: m.a(x).round(),
    "reshape": lambda m, x: m.a(x).reshape(2, -1),
    "reshape(-1)": lambda m, x: m.a(x).reshape(-1),
    "flatten": lambda m, x: m.a(x).flatten(1),
    "flatten all": lambda m, x: m.a(x).flatten(),
    "view": lambda m, x: m.a(x).view(2, 4, 2, 4),
    "unflatten": lambda m, x: m.a(x).unflatten(-1, (2, 4)),
    "squeeze": lambda m, x: m.a(x).unsqueeze(1).squeeze(1),
    "squeeze dims": lambda m, x: m.a(x)[None, :, None].squeeze((0, 2)),
    "transpose": lambda m, x: m.a(x).transpose(-1, -2),
    "swapaxes": lambda m, x: m.a(x).swapaxes(1, 2),
    "movedim": lambda m, x: m.a(x).movedim(1, 2),
    "permute": lambda m, x: m.a(x).permute(0, -1, 1),
    "mT": lambda m, x: m.a(x).mT,
    "einops": lambda m, x: torch.einsum("btd,bsd->bts", m.a(x), m.b(x)),
    "einsum linear": lambda m, x: torch.einsum("btd,ed->bte", x, m.a.weight),
    "h h^T": lambda m, x: m.a(x) @ m.a(x).transpose(1, 2),
    "h h^T names": lambda m, x: torch.bmm(m.a(x), m.b(x).mT),
    "h h^T h": lambda m, x: (m.a(x) @ m.b(x).transpose(-1, -2)) @ x,
    "same h h^T": lambda m, x: (lambda h: h @ h.transpose(1, 2))(m.a(x)),
    "matrix @ x": lambda m, x: m.matrix @ m.a(x),
    "x @ matrix": lambda m, x: m.a(x).transpose(1, 2) @ m.matrix,
    "x @ W": lambda m, x: x @ m.a.weight.T + m.a.bias,
    "x @ vector": lambda m, x: x @ m.a.bias,
    "addmm": lambda m, x: torch.addmm(m.a.bias, x[:, 0], m.a.weight, alpha=2, beta=0.5),
    "baddbmm": lambda m, x: torch.baddbmm(m.matrix, m.a(x), m.b(x).mT),
    "linear no bias": lambda m, x: F.linear(x, m.a.weight),
    "bilinear": lambda m, x: F.bilinear(x, x, torch.ones(3, 8, 8)),
    "select": lambda m, x: m.a(x)[:, 0],
    "select -1": lambda m, x: m.a(x)[:, -1],
    "slice": lambda m, x: m.a(x)[:, :1],
    "slice two": lambda m, x: m.a(x)[:, 1:3],
    "features": lambda m, x: m.a(x)[..., :4],
    "chunk": lambda m, x: m.a(x).chunk(2, -1)[1],
    "gather": lambda m, x: m.a(x).gather(1, torch.zeros(2, 1, 8, dtype=torch.int64)),
    "index_select": lambda m, x: m.a(x).index_select(1, torch.tensor([0])),
    "cat": lambda m, x: torch.cat([m.a(x), m.b(x)], -1),
    "stack": lambda m, x: torch.stack([m.a(x), m.b(x)], 1),
    "split": lambda m, x: m.a(x).split(4, -1)[0],
    "roll": lambda m, x: m.a(x).roll(1, 1),
    "expand": lambda m, x: m.a(x)[:, None].expand(2, 3, 4, 8),
    "repeat": lambda m, x: m.a(x).repeat(1, 2, 1),
    "where": lambda m, x: torch.where(m.table > 0.5, m.a(x), 0.0),
    "masked_fill": lambda m, x: m.a(x).masked_fill(m.table > 0.5, 0.0),
    "where private": lambda m, x: torch.where(x > 0, m.a(x), 0.0),
    "tril": lambda m, x: (m.a(x) @ m.b(x).mT).tril(),
    "dropout": lambda m, x: m.a(m.drops[0](x)),
    "dropouts": lambda m, x: m.drops[2](m.drops[1](m.drops[0](m.a(x)))),
    "layer norm": lambda m, x: m.norm(m.a(x)),
    "layer norm two axes": lambda m, x: F.layer_norm(m.a(x), (4, 8)),
    "layer norm without weight": lambda m, x: F.layer_norm(m.a(x), (8,)),
    "rms norm": lambda m, x: F.rms_norm(m.a(x), (8,), m.norm.weight),
    "normalize": lambda m, x: m.b(F.normalize(m.a(x), dim=-1)),
    "batch norm": lambda m, x: F.batch_norm(m.a(x).mT, torch.zeros(8), torch.ones(8)).mT,
    "group norm": lambda m, x: F.group_norm(m.a(x).mT, 2).mT,
    "gelu": lambda m, x: m.b(F.gelu(m.a(x))),
    "relu_": lambda m, x: m.b(m.a(x).relu_()),
    "leaky relu": lambda m, x: m.b(F.leaky_relu(m.a(x))),
    "glu": lambda m, x: F.glu(m.a(x)),
    "softmax inside": lambda m, x: torch.softmax(m.a(x) @ m.b(x).mT, -1) @ x,
    "softmax axis": lambda m, x: torch.softmax(m.a(x) @ m.b(x).mT, 1) @ x,
    "sdpa": lambda m, x: F.scaled_dot_product_attention(m.a(x), m.b(x), x),
    "sdpa causal": lambda m, x: F.scaled_dot_product_attention(m.a(x), m.b(x), x, is_causal=True),
    "attention": lambda m, x: m.attention(x, x, x)[0],
    "attention no weights": lambda m, x: m.attention(x, x, x, need_weights=False)[0],
    "attention of two": lambda m, x: m.attention(m.a(x), m.b(x), value=x, need_weights=False)[0],
    "attention of a parameter": lambda m, x: m.attention(
        m.table[:1].expand(2, 1, -1), x, x, need_weights=False
    )[0],
    "attention of two parameters": lambda m, x: m.attention(m.table[:2].expand(2, 2, -1), x, x)[0],
    "encoder layer": lambda m, x: m.encoder(x),
    "encoder": lambda m, x: m.encoders(x),
    "encoder norm first": lambda m, x: m.norm_first(x),
    "encoder tokens first": lambda m, x: m.tokens_first(x.transpose(0, 1)).transpose(0, 1),
    "conv1d": lambda m, x: F.conv1d(m.a(x).mT, torch.ones(8, 8, 1)).mT,
    "conv1d wide": lambda m, x: F.conv1d(m.a(x).mT, torch.ones(8, 8, 3), padding=1).mT,
    "pool": lambda m, x: F.adaptive_avg_pool1d(m.a(x).mT, 1)[..., 0],
    "avg pool": lambda m, x: F.avg_pool1d(m.a(x).mT, 4).flatten(1),
    "random": lambda m, x: m.a(x) + torch.rand(8),
    "constant": lambda m, x: m.table,
    "the input": lambda m, x: x,
    "x + x": lambda m, x: (lambda h: h + h)(m.a(x)),
    "x * x": lambda m, x: (lambda h: h * h)(m.a(x)),
    "addcmul": lambda m, x: torch.addcmul(m.a(x), m.a(x), m.b(x), value=0.5),
    "lerp": lambda m, x: torch.lerp(m.a(x), m.b(x), 0.25),
    "sum of list": lambda m, x: sum([m.a(x), m.b(x)]),
    "topk": lambda m, x: m.a(x).topk(2).values,
    "sort": lambda m, x: m.a(x).sort().values,
    "item": lambda m, x: m.a(x) * (2.0 if x.sum() > 0 else 1.0),
    "ones_like": lambda m, x: m.a(x) + torch.ones_like(x),
    "new_zeros": lambda m, x: m.a(x) + x.new_zeros(8),
    "bool": lambda m, x: m.a(x) > 0,
    "numpy": lambda m, x: torch.from_numpy(m.a(x).numpy()),
}

REFUSED = {
    "x // 2", "2 / x", "table / x", "2 ** x", "x ** 0", "x ** 0.5", "x ** 5", "x ** y", "var",
    "max", "amax", "exp", "cumsum", "to int", "round", "sum all", "mean all",
    "mean of batch", "reshape(-1)", "flatten all", "matrix @ x", "bilinear", "slice two",
    "stack", "roll", "expand", "repeat", "where private",
    "layer norm two axes", "group norm", "softmax axis",
    "conv1d wide", "pool", "avg pool", "random", "constant", "topk", "sort",
    "item", "bool", "numpy", "attention of two parameters",
}  # fmt: skip
"""Names of those that are no sums, products and known functions, or mix the inputs of a batch."""
