"""Random modules that write states, index, mask, cast and branch, as users write them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

TOKENS, FEATURES = 6, 8
Step = Callable[["Random", Any, Any], Any]


class Random(nn.Module):
    """Some steps on a hidden state [batch, tokens, features], between two layers."""

    def __init__(self, steps: Sequence[Step], seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.steps, self.k = steps, seed % 4
        self.inner, self.more = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 3)
        self.register_buffer("last", torch.zeros(1, TOKENS, FEATURES))
        self.register_buffer("loose", torch.ones(FEATURES), persistent=False)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("places", torch.randperm(FEATURES))
        self.register_buffer("kept", (torch.rand(TOKENS, FEATURES) > 0.4).float())
        self.count, self.cache, self.table = 0, None, dict[int, Any]()

    def forward(self, x):
        h = self.inner(x)
        for step in self.steps:
            h = step(self, x, h)
        return self.head(torch.tanh(h).mean(1))

    def attended(self, h, kept):
        scores = h @ self.more(h).transpose(1, 2) / FEATURES**0.5
        return scores.masked_fill(~kept, -torch.inf).softmax(-1) @ h


def _then(h: Any, *done: Any) -> Any:
    """The first value; the others were evaluated before."""
    return h


def _count(m: Random) -> int:
    m.count += 1
    return m.count


def _set(m: Random, name: str, value: Any) -> Any:
    setattr(m, name, value)
    return value


def _assign(h: Any, rows: Any, value: Any) -> Any:
    h = h.clone()
    h[rows] = value
    return h


def _quiet(m: Random, h: Any) -> Any:
    with torch.no_grad():
        m.last.copy_(h[:1].detach())
    return h


def _tried(h: Any, attempt: Callable[[], Any]) -> Any:
    try:
        return attempt()
    except RuntimeError:
        return 3 * h


def _checked(h: Any) -> Any:
    assert h.isfinite().all(), "no number"
    return h


STEPS: dict[str, dict[str, Step]] = {
    "write": {
        "running mean": lambda m, x, h: _then(h, m.last.mul_(0.5).add_(h[:1] * 0.5)),
        "running mean, read": lambda m, x, h: h + m.last.mul_(0.5).add_(h[:1] * 0.5),
        "read, then written": lambda m, x, h: _then(h + m.last, m.last.copy_(h[:1])),
        "written, then read": lambda m, x, h: h + m.last.copy_(h[:1]),
        "without gradients": lambda m, x, h: _quiet(m, h),
        "calls": lambda m, x, h: _then(h, m.calls.add_(1)),
        "calls, read": lambda m, x, h: h * m.calls.add_(1),
        "bound again": lambda m, x, h: _then(h, _set(m, "loose", m.loose + h.mean((0, 1)))),
        "bound again, read": lambda m, x, h: h * _set(m, "loose", m.loose * 1.5),
        "counted": lambda m, x, h: _then(h, _count(m)),
        "counted, read": lambda m, x, h: h * _count(m),
        "cached": lambda m, x, h: _set(m, "cache", h),
        "cached, read": lambda m, x, h: h + (_set(m, "cache", h) if m.cache is None else m.cache),
        "in a table": lambda m, x, h: h + m.table.setdefault(len(m.table), h),
        "the input": lambda m, x, h: h + m.more(x.mul_(2)),
        "a slice": lambda m, x, h: _then(h, m.last[:, m.k].copy_(h[0, m.k])),
        "a weight": lambda m, x, h: _then(h, m.more.weight.data.mul_(1.01)),
        "a weight, read": lambda m, x, h: m.more(h) + m.more.weight.data.mul_(1.01).sum(),
        "a state of its own type": lambda m, x, h: _then(h, m.calls.copy_(h.double().mean())),
        "kept for the next": lambda m, x, h: _set(m, "last", h[:1].clone()) + h,
        "a part of the state": lambda m, x, h: _assign(h, (slice(None), m.k), 0.0),
    },
    "index": {
        "a token": lambda m, x, h: h + h[:, m.k : m.k + 1],
        "a list of features": lambda m, x, h: h[:, :, [3, 1, 2, 0, 7, 6, 5, 4]],
        "a buffer": lambda m, x, h: h[..., m.places],
        "index_select": lambda m, x, h: h.index_select(2, m.places),
        "gather": lambda m, x, h: h.gather(2, m.places.expand_as(h)),
        "chosen by the input": lambda m, x, h: h + h[:, x[0, :, 0].argmax()][:, None],
        "every second": lambda m, x, h: h[:, ::2],
        "flip": lambda m, x, h: h.flip(1),
        "narrow": lambda m, x, h: m.more(torch.cat([h.narrow(2, 4, 4), h.narrow(2, 0, 4)], -1)),
        "flip of features": lambda m, x, h: h.flip(-1),
        "features of the input": lambda m, x, h: h + m.more(x[..., m.places]),
        "tokens of the input": lambda m, x, h: h + m.more(x[:, [5, 4, 3, 2, 1, 0]]),
        "some twice": lambda m, x, h: h[..., [0, 0, 1, 1, 2, 3, 4, 5]],
        "pairs": lambda m, x, h: h.unflatten(-1, (4, 2)).flip(-1).flatten(-2),
        "take_along_dim": lambda m, x, h: torch.take_along_dim(h, m.places.expand_as(h), 2),
        "true places": lambda m, x, h: m.more(torch.cat([h[..., m.kept[0] > 0]] * 8, -1)[..., :8]),
        "a mean of tokens": lambda m, x, h: h - h.mean(1, keepdim=True),
        "take": lambda m, x, h: h + torch.take(m.last, torch.zeros(1, dtype=torch.int64)),
    },
    "mask": {
        "product": lambda m, x, h: h * m.kept,
        "masked_fill": lambda m, x, h: h.masked_fill(m.kept > 0, 0.5),
        "where": lambda m, x, h: torch.where(m.kept > 0, h, -h),
        "by the input": lambda m, x, h: h * (x > 0),
        "fill by the input": lambda m, x, h: h.masked_fill(x > 0, 0.0),
        "by itself": lambda m, x, h: h * (h > 0).float(),
        "clamp": lambda m, x, h: h.clamp(-0.5, 0.5),
        "relu by hand": lambda m, x, h: torch.where(h > 0, h, 0.1 * h),
        "of attention": lambda m, x, h: m.attended(h, (m.kept[:, :TOKENS] + torch.eye(6)) > 0),
        "of attention, causal": lambda m, x, h: m.attended(h, torch.ones(6, 6).bool().tril()),
        "of attention, by itself": lambda m, x, h: m.attended(h, x[0, :, :1] > 0),
        "tril": lambda m, x, h: torch.tril(h @ m.more(h).transpose(1, 2)) @ h,
    },
    "cast": {
        "to integers": lambda m, x, h: (4 * h).to(torch.int64).float(),
        "to 16 bits": lambda m, x, h: h.to(torch.bfloat16).float(),
        "to double": lambda m, x, h: h.double().float(),
        "bits": lambda m, x, h: (h.view(torch.int32) + 0).view(torch.float32),
        "other bits": lambda m, x, h: (2 * h.view(torch.int32)).float() * 1e-9,
        "round": lambda m, x, h: h.round(),
        "to bool": lambda m, x, h: h * h.bool(),
        "into integers": lambda m, x, h: (
            h + torch.zeros(1, 6, 8, dtype=torch.int64).copy_(4 * h[:1])
        ),
        "to the input's type": lambda m, x, h: m.more(h.to(x.dtype)),
        "of a truth": lambda m, x, h: h * (m.kept > 0).to(h.dtype),
        "type of a constant": lambda m, x, h: h * m.places.to(h.dtype),
    },
    "branch": {
        "on values": lambda m, x, h: h if h.sum() > 0 else -h,
        "on an item": lambda m, x, h: h * (2.0 if x[0, 0, 0].item() > 0 else 1.0),
        "on a weight": lambda m, x, h: h * (2.0 if m.inner.bias.sum().item() > 0 else 1.0),
        "on a type": lambda m, x, h: h * (2.0 if h.dtype == torch.float32 else 1.0),
        "on a batch": lambda m, x, h: h * (2.0 if len(x) == 1 else 1.0),
        "on a failure": lambda m, x, h: _tried(h, lambda: h * int(x[0, 0, 0] > 0)),
        "asserted": lambda m, x, h: _checked(h),
        "on a length": lambda m, x, h: h * (2.0 if x.shape[1] > 4 else 1.0),
        "on training": lambda m, x, h: h * (2.0 if m.training else 1.0),
        "on exporting": lambda m, x, h: h * (2.0 if torch.compiler.is_exporting() else 1.0),
        "on gradients": lambda m, x, h: h * (2.0 if torch.is_grad_enabled() else 1.0),
        "on a count": lambda m, x, h: h * (2.0 if _count(m) % 3 == 0 else 1.0),
        "on a tensor's type": lambda m, x, h: h * (1.0 if type(h) is torch.Tensor else 2.0),
        "a loop": lambda m, x, h: sum((m.more(h) for _ in range(m.k)), h),
        "random": lambda m, x, h: h * (1 + random.random()),
        "a random tensor": lambda m, x, h: h + torch.rand(FEATURES),
    },
}


def random_module(seed: int) -> tuple[Random, list[str]]:
    """A module of one to three steps, each of another kind, and their names."""
    draw = random.Random(seed)
    kinds = draw.sample(list(STEPS), draw.choice((1, 1, 2, 2, 3)))
    chosen = [(kind, draw.choice(list(STEPS[kind]))) for kind in kinds]
    steps = [STEPS[kind][name] for kind, name in chosen]
    return Random(steps, seed).eval(), [f"{kind}: {name}" for kind, name in chosen]
