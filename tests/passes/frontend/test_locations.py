"""Every run of a block is a block of its own, whatever the model calls it."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.calibration.measure import nonlinear_ops
from atlasc.ir.interpreter import interpret
from atlasc.passes.approximation.approximate import layer_count, places
from atlasc.passes.frontend.trace import ShapeSpec, trace


def shared(kind: str):
    """One block that runs three times: in a loop, or as three members of a list."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm, self.act = nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x + self.act(self.linear(x)))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            block = Block()
            self.block = block if kind == "loop" else nn.ModuleList([block] * 3)
            self.act, self.head = nn.GELU(), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for index in range(3):
                x = (self.block if kind == "loop" else self.block[index])(x)
            return self.head(self.act(x))

    torch.manual_seed(0)
    return Model().eval()


@pytest.mark.parametrize(("kind", "block"), [("loop", "block@{}"), ("list", "block.{}")])
def test_a_shared_block_is_one_for_each_run(kind: str, block: str) -> None:
    import torch

    model = shared(kind)
    module = trace(model, {"x": ShapeSpec((1, 4, 8), "f32")}, name="shared")
    ops = nonlinear_ops(module)
    expected = [f"{block.format(run)}.{part}" for run in range(3) for part in ("act", "norm")]
    assert [op.location for op in ops] == [*expected, "act"]
    assert [op.layer for op in ops] == [0, 0, 1, 1, 2, 2, None]
    assert [op.block for op in ops[::2]] == [*(block.format(run) for run in range(3)), None]
    assert len({op.attributes["weight"].name for op in module.ops if op.name == "nn.linear"}) == 2
    x = np.random.default_rng(0).standard_normal((1, 4, 8))
    with torch.no_grad():
        exact = model(torch.from_numpy(x).float()).numpy()
    np.testing.assert_allclose(next(iter(interpret(module, {"x": x}).values())), exact, atol=1e-5)


def test_layers_of_albert_have_settings_of_their_own() -> None:
    from transformers import AlbertConfig, AlbertModel

    config = AlbertConfig(
        vocab_size=20, embedding_size=8, hidden_size=8, num_attention_heads=2,
        num_hidden_layers=4, num_hidden_groups=2, intermediate_size=16,
    )  # fmt: skip
    inputs = {name: ShapeSpec((1, 6), "i64") for name in ("input_ids", "attention_mask")}
    module = trace(AlbertModel(config).eval(), inputs, name="albert")
    assert layer_count(module) == 4
    assert [place.block for place in places(module)] == [n for n in range(4) for _ in range(4)]
    paths = {op.location for op in nonlinear_ops(module)}
    assert len(paths) == 16
    assert "encoder.albert_layer_groups.1@3.albert_layers.0.attention" in paths
