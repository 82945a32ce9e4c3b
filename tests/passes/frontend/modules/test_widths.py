"""Attention heads of several widths get features of 0, so that one packing holds all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import atlasc
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

BATCH, TOKENS, FEATURES = 2, 3, 6
X = np.random.default_rng(0).normal(size=(BATCH, TOKENS, FEATURES)).astype(np.float32)


class Attention(nn.Module):
    """Attention with keys of one width and values of another; ``single``: of the first token."""

    def __init__(self, heads: int, keys: int, values: int, normed: bool, single: bool) -> None:
        super().__init__()
        self.sizes, self.single = (keys, keys, values), single
        self.layers = nn.ModuleList(nn.Linear(FEATURES, heads * width) for width in self.sizes)
        self.norm = nn.LayerNorm(keys) if normed else nn.Identity()
        self.out = nn.Linear(heads * values, FEATURES)

    def forward(self, x: Any) -> Any:
        parts = [
            layer(x[:, :1] if self.single and number == 0 else x).unflatten(-1, (-1, width))
            for number, (layer, width) in enumerate(zip(self.layers, self.sizes, strict=True))
        ]
        query, key, value = (part.transpose(1, 2) for part in parts)
        scores = self.norm(query) @ key.mT / self.sizes[0] ** 0.5
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class Layers(nn.Module):
    """Attention of these heads and widths, one after the other, and a head."""

    def __init__(self, *sizes: tuple[int, int, int], normed: bool = False, single: bool = False):
        super().__init__()
        torch.manual_seed(0)
        count = len(sizes)
        self.layers = nn.ModuleList(
            Attention(*one, normed, single and number == count - 1)
            for number, one in enumerate(sizes)
        )
        self.head = nn.Linear(FEATURES, 2)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


CASES: dict[str, tuple[Layers, int]] = {
    "wider values": (Layers((2, 2, 4)), 4),
    "wider keys": (Layers((2, 4, 2)), 4),
    "values of three": (Layers((2, 2, 3)), 3),
    "layers of two widths": (Layers((2, 2, 2), (1, 4, 4)), 4),
    "one query": (Layers((2, 2, 4), single=True), 4),
    "behind a norm": (Layers((2, 2, 4), normed=True), 4),
    "one width": (Layers((2, 3, 3), (1, 3, 3)), 3),
}


def traced(model: nn.Module) -> Module:
    return run_passes(trace(model.eval(), {"x": X}, name="m"), [Canonicalise()])


@pytest.mark.parametrize("name", CASES)
def test_all_heads_have_the_greatest_width(name: str) -> None:
    model, width = CASES[name]
    module = traced(model)
    products = [op for op in module.ops if op.name == "nn.matmul"]
    assert (
        {op.operands[1].tensor.shape[-1] for op in products}
        == {width}
        == {op.operands[0].tensor.shape[-1] for op in products[::2]}
    )
    with torch.no_grad():
        wanted = model(torch.from_numpy(X)).numpy()
    (found,) = interpret(module, {"x": X}).values()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_zeros_become_rows_of_the_layers_beside_them() -> None:
    for sizes in ((2, 2, 4), (2, 4, 2)):
        ops = [op.name for op in traced(Layers(sizes)).ops]
        assert ops.count("nn.linear") == 5
        assert ops.count("nn.transpose") == 4


@pytest.mark.parametrize("name", ["wider values", "wider keys", "layers of two widths"])
def test_a_program_has_heads_of_several_widths(name: str) -> None:
    model, _ = CASES[name]
    data = np.random.default_rng(1).normal(size=(24, TOKENS, FEATURES)).astype(np.float32)
    program = atlasc.compile(model.eval(), {"x": data}, recipe="is", target="sim")
    with torch.no_grad():
        wanted = model(torch.from_numpy(data)).numpy()
    answer = program.run({"x": data[:4]})
    assert not answer.refused and answer.max_error < 1e-9
    np.testing.assert_allclose(answer.outputs["output"], wanted[:4], atol=1e-3)
