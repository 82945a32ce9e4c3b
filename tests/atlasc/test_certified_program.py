"""``--ranges certified``: a program whose ranges no input leaves, whatever it was calibrated on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import atlasc
from tests.atlasc.cli.command import DATA, MODEL, refused

WORDS, TOKENS, FEATURES, HEADS = 60, 6, 16, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(FEATURES, FEATURES) for _ in range(4)
        )
        self.up, self.down = nn.Linear(FEATURES, 32), nn.Linear(32, FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = *x.shape[:2], HEADS, FEATURES // HEADS
        q, k, v = (
            part(x).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / shape[-1] ** 0.5
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.output(mixed)
        return x + self.down(nn.functional.gelu(self.up(x)))


class WithoutServerNorms(nn.Module):
    """Its only norm comes after the embedding: the client computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, FEATURES), nn.LayerNorm(FEATURES)
        self.layers = nn.ModuleList([Block()])
        self.head = nn.Linear(FEATURES, 4)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(input_ids))
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


def test_inputs_unlike_those_of_calibration_stay_in_certified_ranges() -> None:
    torch.manual_seed(0)
    rng, model = np.random.default_rng(1), WithoutServerNorms().eval()
    few = rng.integers(0, 5, size=(40, TOKENS))
    others = {"input_ids": rng.integers(0, WORDS, size=(100, TOKENS))}
    programs = {
        ranges: atlasc.compile(
            model, {"input_ids": few}, ranges=ranges, cost="levels", evaluations=60, target="sim"
        )
        for ranges in ("measured", "certified")
    }
    outside = {
        ranges: sum(bool(verdict.excesses) for verdict in program.check(others))
        for ranges, program in programs.items()
    }
    assert outside["certified"] == 0 < outside["measured"]
    answers = programs["certified"].run({"input_ids": others["input_ids"][:2]}).outputs
    exact = model(torch.tensor(others["input_ids"][:2])).detach().numpy()
    (found,) = answers.values()
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()


def test_a_model_that_has_none_is_told_so() -> None:
    told = refused("calibrate", MODEL, "--data", DATA, "--ranges", "certified")
    assert "nn.layer_norm" in told and "vit.layers.0.layernorm_before" in told
    assert "--ranges measured" in told


@pytest.mark.parametrize("other", [["--recipe", "is"], ["--space", "paper"]])
def test_published_ranges_are_not_certified(other: list[str], tmp_path: Path) -> None:
    words = ["--ranges", "certified", *other, "-o", tmp_path / "bundle"]
    assert "--ranges certified" in refused("compile", MODEL, "--data", DATA, *words)
