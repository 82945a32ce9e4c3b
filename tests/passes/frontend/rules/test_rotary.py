"""Rotary embeddings, however they are written, are nn.rotary; orders of features cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

BATCH, TOKENS, HEADS, WIDTH = 2, 5, 3, 8
Turn = Callable[[Any, Any, Any], Any]


def _halves(x: Any) -> Any:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def _neighbours(x: Any) -> Any:
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def _by_halves(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    return x * cos + _halves(x) * sin


def _by_neighbours(x: Any, cos: Any, sin: Any) -> Any:
    cos, sin = (one.repeat_interleave(2, -1) for one in (cos, sin))
    return x * cos + _neighbours(x) * sin


def _in_parts(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def _in_halves(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.split(WIDTH // 2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _backwards(x: Any, cos: Any, sin: Any) -> Any:
    return _by_halves(x, cos, -sin)


def _some(turn: Turn) -> Turn:
    def turned(x: Any, cos: Any, sin: Any) -> Any:
        half = WIDTH // 2
        return torch.cat(
            [turn(x[..., :half], cos[..., : half // 2], sin[..., : half // 2]), x[..., half:]], -1
        )

    return turned


FORMS: dict[str, Turn] = {
    "halves": _by_halves,
    "neighbours": _by_neighbours,
    "in parts": _in_parts,
    "in halves": _in_halves,
    "backwards": _backwards,
    "some, by halves": _some(_by_halves),
    "some, by neighbours": _some(_by_neighbours),
    "scaled": lambda x, cos, sin: _by_halves(x, 1.2 * cos, 1.2 * sin),
}


class Rotated(nn.Module):
    """Attention with a rotary embedding of queries and keys, before or after heads come first."""

    def __init__(self, turn: Turn, heads_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turn, self.heads_first = turn, heads_first
        features = HEADS * WIDTH
        self.q, self.k, self.v = (nn.Linear(features, features) for _ in range(3))
        angles = torch.arange(TOKENS)[:, None] * torch.rand(WIDTH // 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def _turned(self, x):
        x = x.view(BATCH, TOKENS, HEADS, WIDTH)
        if self.heads_first:
            return self.turn(x.transpose(1, 2), self.cos, self.sin)
        cos, sin = (one[None, :, None] for one in (self.cos, self.sin))
        return self.turn(x, cos, sin).transpose(1, 2)

    def forward(self, x):
        values = self.v(x).view(BATCH, TOKENS, HEADS, WIDTH).transpose(1, 2)
        weights = (self._turned(self.q(x)) @ self._turned(self.k(x)).mT).softmax(-1)
        return (weights @ values).transpose(1, 2).flatten(2)


def _compared(model: nn.Module) -> Module:
    x = np.random.default_rng(0).normal(size=(BATCH, TOKENS, HEADS * WIDTH)).astype(np.float32)
    with torch.no_grad():
        wanted = model(torch.from_numpy(x)).numpy()
    module = run_passes(trace(model, {"x": x}, name="m"), [Canonicalise()])
    (found,) = interpret(module, {"x": x}).values()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    return module


@pytest.mark.parametrize("heads_first", [True, False])
@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_two_rotary_ops_between_three_layers(name: str, heads_first: bool) -> None:
    ops = [op.name for op in _compared(Rotated(FORMS[name], heads_first).eval()).ops]
    assert ops.count("nn.rotary") == 2 and ops.count("nn.linear") == 3
    assert "nn.mul" not in ops


def test_features_with_two_partners_are_no_rotary_embedding() -> None:
    def turn(x: Any, cos: Any, sin: Any) -> Any:
        cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
        return x * cos + (_halves(x) + _neighbours(x)) * sin

    x = np.random.default_rng(0).normal(size=(BATCH, TOKENS, HEADS * WIDTH)).astype(np.float32)
    with pytest.raises(AtlasError, match=r"aten.stack"):
        trace(Rotated(turn, True).eval(), {"x": x}, name="m")
