"""What lies before the tokens, and sums of tokens: convolutions, leading tokens, pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

FEATURES = 8


class Model(nn.Module):
    """A front, one attention in a block with a number, and an end."""

    def __init__(self, front: Callable[..., Any], end: Callable[..., Any] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.wide = nn.Conv2d(3, FEATURES, 4, 4), nn.Conv2d(3, FEATURES, 5, 3, 1)
        self.valid = nn.Conv2d(3, FEATURES, 4, 4, padding="valid")
        self.wave, self.again = nn.Conv1d(1, 6, 5, 3, bias=False), nn.Conv1d(6, FEATURES, 3, 2, 1)
        self.grouped = nn.Conv1d(FEATURES, FEATURES, 4, padding=2, groups=2)
        self.same = nn.Conv1d(FEATURES, FEATURES, 4, padding="same", dilation=2)
        self.each, self.two = nn.GroupNorm(6, 6), nn.GroupNorm(2, FEATURES)
        self.tokens = nn.Parameter(torch.randn(1, 2, FEATURES))
        self.places = nn.Parameter(torch.randn(1, 6, FEATURES))
        self.gains = nn.Parameter(torch.rand(FEATURES))
        self.head = nn.Linear(2 * FEATURES, 3)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(FEATURES, 2, 12, batch_first=True, activation="gelu")]
        )
        for parameter in (self.each, self.two):
            parameter.weight.data += torch.rand_like(parameter.weight)
        self.front, self.end = front, end

    def forward(self, x):
        x = self.layers[0](self.front(self, x))
        return x if self.end is None else self.end(self, x)


def flat(x: Any) -> Any:
    return x.flatten(2).transpose(1, 2)


def waves(m: Any, x: Any) -> Any:
    x = F.gelu(m.each(m.wave(x[:, None])))
    return F.gelu(m.again(x)).transpose(1, 2)


def positions(m: Any, x: Any) -> Any:
    x = m.two(waves(m, x).transpose(1, 2))
    return (x + F.gelu(m.grouped(x)[..., :-1]) + m.same(x)).transpose(1, 2)


def with_tokens(m: Any, x: Any) -> Any:
    x = flat(m.image(x))
    return torch.cat([m.tokens.expand(len(x), -1, -1), x], 1) + m.places


def in_the_middle(m: Any, x: Any) -> Any:
    x = flat(m.image(x)) + m.places[:, :4]
    first, last = m.tokens.expand(len(x), -1, -1).split(1, 1)
    return torch.cat([x[:, :1], first, x[:, 2:], last], 1)


IMAGE, WAVE, BANDS = (2, 3, 8, 8), (2, 40), (2, 9, 7)
FRONTS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "patches": (lambda m, x: flat(m.image(x)), IMAGE),
    "overlapping": (lambda m, x: flat(m.wide(x)), IMAGE),
    "a word": (lambda m, x: flat(m.valid(x)), IMAGE),
    "two leading tokens": (with_tokens, IMAGE),
    "tokens in the middle": (in_the_middle, IMAGE),
    "rolled": (lambda m, x: flat(F.pad(m.image(x), (0, 0)).roll((1, -1), (2, 3))), IMAGE),
    "waves": (waves, WAVE),
    "positions": (positions, WAVE),
    "spectrogram": (
        lambda m, x: flat(F.conv2d(x[:, None].mT, m.wide.weight[:, :1], stride=(2, 1))),
        BANDS,
    ),
}
ENDS: dict[str, Callable[..., Any]] = {
    "all but the first": lambda m, x: x[:, 1:].mean(1),
    "kept axis": lambda m, x: x[:, 1:3].mean(1, keepdim=True),
    "a sum": lambda m, x: x[:, ::2].sum(1),
    "one token": lambda m, x: x[:, 1:2].mean(1),
    "pool": lambda m, x: F.adaptive_avg_pool1d(x.transpose(1, 2), 1).flatten(1),
    "weights": lambda m, x: (m.places[:, :1, : x.shape[1]] @ x)[:, 0],
    "first and mean": lambda m, x: m.head(torch.cat([x[:, 0], x[:, 1:].mean(1)], -1)),
}


def require_equal(model: nn.Module, shape: tuple[int, ...]) -> Module:
    """The module of a model in evaluation mode equals torch, also after canonicalisation."""
    model.eval()
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    module = trace(model, {"x": x}, name="front")
    with torch.no_grad():
        wanted = model(torch.from_numpy(x)).numpy()
    simpler = run_passes(module, [Canonicalise()])
    for written in (module, simpler):
        (found,) = interpret(written, {"x": x}).values()
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    return simpler


@pytest.mark.parametrize("name", FRONTS)
def test_the_client_computes_what_lies_before_the_tokens(name: str) -> None:
    front, shape = FRONTS[name]
    module = require_equal(Model(front), shape)
    encrypted = [op for op in module.ops if op.name == "nn.encrypt"]
    assert len(encrypted) == 1 and encrypted[0].value.tensor.shape[-1] == FEATURES
    moves = [op for op in module.ops if op.name in ("nn.transpose", "nn.reshape")]
    server = [op for op in moves if op.value.tensor.side == "server"]
    assert all(len(op.value.tensor.shape) == 4 or op.location for op in server)


@pytest.mark.parametrize(("name", "convolutions"), [("patches", 0), ("waves", 2), ("positions", 4)])
def test_a_note_says_what_the_client_computes(name: str, convolutions: int) -> None:
    front, shape = FRONTS[name]
    heard: list[str] = []
    x = {"x": np.zeros(shape, np.float32)}
    trace(Model(front).eval(), x, name="front", note=lambda headline, _: heard.append(headline))
    said = [f"the client computes {convolutions} convolutions, and what lies between them"]
    assert heard == (said if convolutions else [])


@pytest.mark.parametrize("name", ENDS)
def test_sums_of_tokens(name: str) -> None:
    front, shape = FRONTS["patches"]
    module = require_equal(Model(front, ENDS[name]), shape)
    names = [op.name for op in module.ops if op.layer is None]
    assert "nn.mean" in names or name == "one token"


def test_joined_features_spend_no_level_of_their_own() -> None:
    """W·[a, b] is one layer of a plus one of b."""
    front, shape = FRONTS["patches"]
    module = require_equal(Model(front, ENDS["first and mean"]), shape)
    last = module.outputs[0].operands[0].op
    assert last.name == "nn.add"
    assert [value.op.operands[0].op.name for value in last.operands] == ["nn.select", "nn.mean"]


@pytest.mark.parametrize(
    ("end", "op"),
    [
        (lambda m, x: m.grouped(x.transpose(1, 2)), "aten.conv1d"),
        (lambda m, x: m.two(x.transpose(1, 2)), "aten.group_norm"),
        (lambda m, x: torch.cat([m.tokens.expand(len(x), -1, -1), x], 1), "aten.cat"),
        (lambda m, x: x[:, 1:3], "aten.slice"),
        (lambda m, x: F.pad(x, (0, 0, 1, -1)), "pad"),
        (lambda m, x: x.roll(1, 1), "tokens that move to other places"),
        (lambda m, x: (x[:, 1:] ** 2).mean(1), "aten.slice"),
        (lambda m, x: (x[:, 1:] * m.gains).mean(1), "aten.slice"),
    ],
)
def test_what_only_the_client_can_do_is_refused_after_attention(
    end: Callable[..., Any], op: str
) -> None:
    front, shape = FRONTS["patches"]
    x = np.zeros(shape, np.float32)
    with pytest.raises(AtlasError, match=op) as caught:
        trace(Model(front, end).eval(), {"x": x}, name="end")
    assert "test_before_tokens.py" in caught.value.where


def test_a_network_of_convolutions_is_not_left_to_the_client() -> None:
    """Only the first convolution reads the input; without attention the others are refused."""
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.GELU(), nn.Conv1d(4, 4, 3)).eval()
    with pytest.raises(AtlasError, match="it has no rule on encrypted data"):
        trace(net, {"input": np.zeros((1, 2, 9), np.float32)}, name="net")
