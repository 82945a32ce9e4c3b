"""Queries, keys and values cut out of one layer become layers of their own, exactly."""

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

BATCH, TOKENS, HEADS, WIDTH = 2, 5, 2, 4
FEATURES = HEADS * WIDTH
X = np.random.default_rng(0).normal(size=(BATCH, TOKENS, FEATURES)).astype(np.float32)
ROTARY = 2
"""Features of a head that are rotated."""


class Attention(nn.Module):
    """Attention whose queries, keys and values, [batch, heads, tokens, width], ``cut`` makes of one
    layer's result.
    """

    def __init__(self, cut: Callable[[Any], Any], turned: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fused, self.out = nn.Linear(FEATURES, 3 * FEATURES), nn.Linear(FEATURES, 3)
        angles = torch.rand(TOKENS, turned // 2) if turned else torch.rand(TOKENS, 0)
        both = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", both.cos())
        self.register_buffer("sin", both.sin())
        self.cut, self.turned = cut, turned

    def rotated(self, x: Any) -> Any:
        if not self.turned:
            return x
        first, rest = x[..., : self.turned], x[..., self.turned :]
        half = self.turned // 2
        other = torch.cat([-first[..., half:], first[..., :half]], dim=-1)
        turned = first * self.cos + other * self.sin
        return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned

    def forward(self, x: Any) -> Any:
        query, key, value = self.cut(self.fused(x))
        query, key = self.rotated(query), self.rotated(key)
        scores = query @ key.transpose(2, 3) / WIDTH**0.5
        context = scores.softmax(-1) @ value
        return self.out(context.transpose(1, 2).reshape(x.shape))


def heads_of(parts: Any) -> list[Any]:
    return [part.reshape(BATCH, TOKENS, HEADS, WIDTH).transpose(1, 2) for part in parts]


CUTS: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: heads_of(x.split(FEATURES, dim=2)),
    "chunk": lambda x: heads_of(x.chunk(3, dim=-1)),
    "slices": lambda x: heads_of(x[..., i * FEATURES : (i + 1) * FEATURES] for i in range(3)),
    "unbind": lambda x: heads_of(x.view(BATCH, TOKENS, 3, FEATURES).unbind(2)),
    "view and select": lambda x: heads_of(
        x.view(BATCH, TOKENS, 3, HEADS, WIDTH)[:, :, i] for i in range(3)
    ),
    "permute and index": lambda x: x.view(BATCH, TOKENS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4),
    "chunk of heads": lambda x: (
        x.view(BATCH, TOKENS, HEADS, 3 * WIDTH).transpose(1, 2).chunk(3, dim=-1)
    ),
    "select inside heads": lambda x: [
        x.view(BATCH, TOKENS, HEADS, 3, WIDTH)[..., i, :].transpose(1, 2) for i in range(3)
    ],
    "split along heads": lambda x: [
        part.transpose(1, 2)
        for part in x.view(BATCH, TOKENS, 3 * HEADS, WIDTH).split([HEADS] * 3, dim=2)
    ],
    "every third": lambda x: heads_of(x[..., i::3] for i in range(3)),
}


def assert_equal(model: nn.Module, modules: list[Module]) -> None:
    with torch.no_grad():
        wanted = model(torch.from_numpy(X)).numpy()
    for module in modules:
        (found,) = interpret(module, {"x": X}).values()
        np.testing.assert_allclose(found, wanted, atol=2e-6, rtol=0)


def layers(module: Module) -> list[tuple[int, ...]]:
    return [op.value.tensor.shape for op in module.ops if op.name == "nn.linear"]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_becomes_rows_of_weights(cut: str) -> None:
    model = Attention(CUTS[cut])
    module = trace(model, {"x": X}, name="cut")
    canonical = run_passes(module, [Canonicalise()])
    assert_equal(model, [module, canonical])
    assert layers(canonical) == [(BATCH, TOKENS, FEATURES)] * 3 + [(BATCH, TOKENS, 3)]
    assert all(len(op.value.tensor.shape) < 5 for op in canonical.ops if op.result is not None)


@pytest.mark.parametrize("turned", [ROTARY, WIDTH])
@pytest.mark.parametrize("cut", ["chunk", "chunk of heads"])
def test_a_rotary_embedding_of_some_features_takes_no_layer(cut: str, turned: int) -> None:
    """The order of the features that rotary needs goes into the weights before it."""
    model = Attention(CUTS[cut], turned)
    module = trace(model, {"x": X}, name="partial")
    canonical = run_passes(module, [Canonicalise()])
    assert_equal(model, [module, canonical])
    assert layers(canonical) == [(BATCH, TOKENS, FEATURES)] * 3 + [(BATCH, TOKENS, 3)]
    rotations = [op for op in canonical.ops if op.name == "nn.rotary"]
    assert len(rotations) == 2
    for op in rotations:
        cos = canonical.symbols[op.attributes["cos"].name]
        assert (cos == 1).all(axis=0).sum() == WIDTH - turned


def test_an_order_that_only_one_operand_has_stays() -> None:
    class Uneven(Attention):
        def forward(self, x: Any) -> Any:
            query, key, value = self.cut(self.fused(x))
            scores = self.rotated(query) @ key.transpose(2, 3)
            context = scores.softmax(-1) @ value
            return self.out(context.transpose(1, 2).reshape(x.shape))

    model = Uneven(CUTS["chunk"], ROTARY)
    module = trace(model, {"x": X}, name="uneven")
    assert_equal(model, [module, run_passes(module, [Canonicalise()])])
    assert len(layers(module)) > 4


def test_tokens_are_not_cut() -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x * x)[:, 1:]

    with pytest.raises(AtlasError) as caught:
        trace(Model(), {"x": X}, name="tokens")
    assert f"{TOKENS - 1} of {TOKENS} indices along axis 1" in str(caught.value)
    assert "aten.slice.Tensor" in caught.value.what


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_cut_of_a_layer_is_a_view_of_its_weight(device: str) -> None:
    """No product with a matrix of ones, which would take minutes and gigabytes for Phi-3."""
    model = Attention(CUTS["split"]).to(device)
    module = trace(model, {"x": X}, name="view")
    fused = model.fused.weight.detach()
    weights = [module.symbols[op.attributes["weight"].name] for op in module.ops
               if op.name == "nn.linear"][:3]  # fmt: skip
    assert all(weight.shape == (FEATURES, FEATURES) for weight in weights)
    if device == "meta":
        assert not any(any(weight.strides) for weight in weights)
    else:
        assert all(np.shares_memory(weight, fused.numpy()) for weight in weights)


INDICES: dict[str, Callable[[Any], Any]] = {
    "order": lambda h: h[..., [3, 1, 0, 2, 7, 5, 6, 4]],
    "list of rows": lambda h: h[..., torch.tensor([[7, 1], [0, -3]])],
    "order of blocks": lambda h: h.view(BATCH, TOKENS, HEADS, WIDTH)[:, :, [1, 0]].flatten(2),
    "two axes": lambda h: h.view(BATCH, TOKENS, HEADS, WIDTH)[:, :, [0, 1, 1], [2, 0, -1]],
    "one token": lambda h: h[:, [2]],
    "gathered token": lambda h: h.gather(1, torch.full((BATCH, 1, FEATURES), 1)),
    "copies of a head": lambda h: (
        h.view(BATCH, TOKENS, HEADS, 1, WIDTH).expand(-1, -1, -1, 3, -1).flatten(2)
    ),
    "copies in groups": lambda h: (
        h.view(BATCH, TOKENS, HEADS, 1, WIDTH).expand(-1, -1, -1, 3, -1).reshape(BATCH, TOKENS, -1)
    ),
}


class Chosen(nn.Module):
    def __init__(self, choice: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.choice = nn.Linear(FEATURES, FEATURES), choice

    def forward(self, x: Any) -> Any:
        return self.choice(self.layer(x))


@pytest.mark.parametrize("name", INDICES)
def test_a_constant_index_chooses_features_or_a_token(name: str) -> None:
    model = Chosen(INDICES[name])
    module = trace(model, {"x": X}, name="chosen")
    assert_equal(model, [module, run_passes(module, [Canonicalise()])])


def test_lists_along_axes_that_are_apart_are_refused() -> None:
    def apart(h: Any) -> Any:
        return h.view(BATCH, TOKENS, HEADS, 2, 2)[:, :, [0, 1], :, [1, 0]]

    with pytest.raises(AtlasError, match="neighbouring axes of features"):
        trace(Chosen(apart), {"x": X}, name="apart")
