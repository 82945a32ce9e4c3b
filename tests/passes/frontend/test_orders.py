"""Features in another order, as torch puts them: flips, permutations, gathers with constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

TOKENS, FEATURES = 5, 8
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, TOKENS, FEATURES)).astype(np.float32)
V = RANDOM.normal(size=(2, FEATURES)).astype(np.float32)
Step = Callable[["Model", Any], Any]


class Model(nn.Module):
    """An order of features after what a source makes."""

    def __init__(self, source: Step, order: Step) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.source, self.order = source, order
        self.layer, self.bare = nn.Linear(FEATURES, FEATURES), nn.Linear(8, 8, bias=False)
        self.blocks = nn.ModuleList([nn.Linear(FEATURES, FEATURES)])
        self.register_buffer("places", torch.randperm(FEATURES))
        self.register_buffer("kept", torch.tensor([True, False] * 4))

    def forward(self, x):
        return self.order(self, self.source(self, x))


SOURCES: dict[str, Step] = {
    "the input": lambda m, x: x,
    "a layer": lambda m, x: m.layer(x),
    "a layer without a bias": lambda m, x: m.bare(x),
    "a block": lambda m, x: m.blocks[0](x),
    "an activation": lambda m, x: torch.relu(m.layer(x)),
    "a sum": lambda m, x: m.layer(x) + x,
    "another order": lambda m, x: m.layer(x).flip(-1),
}
ORDERS: dict[str, Step] = {
    "flip": lambda m, h: h.flip(-1),
    "flip, counted from the front": lambda m, h: h.flip(h.ndim - 1),
    "flipped twice": lambda m, h: h.flip(-1).flip(-1),
    "a buffer": lambda m, h: h[..., m.places],
    "a list": lambda m, h: h[..., [7, 5, 3, 1, 0, 2, 4, 6]],
    "a descending list": lambda m, h: h[..., [7, 6, 5, 4, 3, 2, 1, 0]],
    "a descending part": lambda m, h: h[..., [6, 4, 2]],
    "descending to the first": lambda m, h: h[..., [6, 4, 2, 0]],
    "negative places": lambda m, h: h[..., [-1, 0, -3, 2]],
    "one twice": lambda m, h: h[..., [0, 0, 1, 1]],
    "one alone": lambda m, h: h[..., [3]],
    "true places": lambda m, h: h[..., m.kept],
    "index_select": lambda m, h: h.index_select(-1, m.places),
    "gather": lambda m, h: h.gather(-1, m.places.expand_as(h)),
    "gather a part": lambda m, h: h.gather(-1, m.places[:3].expand(*h.shape[:-1], 3)),
    "take_along_dim": lambda m, h: torch.take_along_dim(h, m.places.expand_as(h), -1),
    "roll": lambda m, h: h.roll(3, -1),
    "halves": lambda m, h: torch.cat(h.chunk(2, -1)[::-1], -1),
    "pairs": lambda m, h: h.unflatten(-1, (4, 2)).flip(-1).flatten(-2),
    "heads": lambda m, h: h.unflatten(-1, (4, 2)).flip(-2).flatten(-2),
    "a shuffle": lambda m, h: h.unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2),
    "an order beside the old one": lambda m, h: h + h.flip(-1) * 2,
}


def both(model: nn.Module, x: np.ndarray) -> None:
    """Compare a module with torch, as it is traced and in its canonical form."""
    with torch.no_grad():
        wanted = model(torch.tensor(x)).numpy()
    module = trace(model, {"x": x}, name="order")
    for one in (module, run_passes(module, [Canonicalise()])):
        (found,) = interpret(one, {"x": x}).values()
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("source", SOURCES)
def test_features_in_another_order(source: str, order: str) -> None:
    both(Model(SOURCES[source], ORDERS[order]).eval(), X)


@pytest.mark.parametrize("order", sorted({*ORDERS} - {"pairs", "heads", "a shuffle"}))
def test_of_one_vector(order: str) -> None:
    both(Model(SOURCES["a layer"], ORDERS[order]).eval(), V)


TOKEN_ORDERS: dict[str, Step] = {
    "flip": lambda m, h: h.flip(1),
    "both axes": lambda m, h: h.flip(1, 2),
    "a list": lambda m, h: h[:, [4, 3, 2, 1, 0]],
    "gather": lambda m, h: h.gather(1, torch.tensor([4, 3, 2, 1, 0])[:, None].expand_as(h)),
}


@pytest.mark.parametrize("order", TOKEN_ORDERS)
def test_the_client_alone_moves_tokens(order: str) -> None:
    """A client of a model with blocks has its tokens in the clear before the first one."""

    def ahead(m: Model, x: Any) -> Any:
        return m.blocks[0](TOKEN_ORDERS[order](m, x))

    both(Model(ahead, lambda m, h: h).eval(), X)
    with pytest.raises(AtlasError, match="tokens that move to other places") as caught:
        trace(Model(SOURCES["a block"], TOKEN_ORDERS[order]).eval(), {"x": X}, name="m")
    assert "test_orders.py:" in caught.value.where


def test_inputs_of_a_batch_stay_in_their_order() -> None:
    with pytest.raises(AtlasError, match="the first axis counts inputs"):
        trace(Model(SOURCES["a layer"], lambda m, h: h.flip(0)).eval(), {"x": X}, name="m")


def test_positions_that_differ_from_token_to_token_are_refused() -> None:
    places = torch.stack([torch.randperm(FEATURES) for _ in range(TOKENS)]).expand(2, -1, -1)

    def differing(m: Model, h: Any) -> Any:
        return h.gather(2, places)

    with pytest.raises(AtlasError, match="the positions differ from place to place"):
        trace(Model(SOURCES["a layer"], differing).eval(), {"x": X}, name="m")


def test_a_descending_part_is_a_view_of_the_weight() -> None:
    model = Model(SOURCES["a layer without a bias"], ORDERS["flip"]).eval()
    module = trace(model, {"x": X}, name="m")
    (op,) = (op for op in module.ops if op.name == "nn.linear")
    weight = module.symbols[op.attributes["weight"].name]
    assert np.shares_memory(weight, model.bare.weight.detach().numpy())
