"""Each line of the table of rewritings, as a user's module: one side is refused with the line, the
other is compiled to the same values.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.passes.framework.rewritings import PACKED, REWRITINGS, Rewriting

TOKENS, FEATURES = 3, 8
RANDOM = np.random.default_rng(0)
LINES = sorted(set().union(*REWRITINGS.values(), *PACKED.values()))
PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/bring-a-module.md"
MODULE = """\
from functools import reduce

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        weight = torch.randn(40, 8)
        self.means = nn.EmbeddingBag.from_pretrained(weight)
        self.sums = nn.EmbeddingBag.from_pretrained(weight, mode="sum")
        self.table = nn.Embedding.from_pretrained(weight)
        self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        kept = torch.ones(8).index_fill(0, torch.tensor([2, 3]), 0.0)
        self.register_buffer("kept", kept)
        self.register_buffer("places", torch.tensor([2, 3]))
        self.register_buffer("upper", torch.ones(8, 8).triu())
        self.zero, self.flat, self.layers = nn.Linear(8, 8), nn.Linear(24, 8), nn.ModuleList()
        nn.init.zeros_(self.zero.weight), nn.init.zeros_(self.zero.bias)
        for weight in self.flat.weight.detach().split(8, 1):
            self.layers.append(nn.Linear(8, 8, bias=not self.layers))
            self.layers[-1].weight = nn.Parameter(weight.clone())
        self.layers[0].bias = self.flat.bias
        self.one, self.wide = nn.Linear(4, 4), nn.Linear(4, 8)
        self.norm = nn.LayerNorm(4)
        self.rms = nn.RMSNorm(4, eps=self.norm.eps)
        mix = torch.rand(3, 3).softmax(0)
        self.register_buffer("first", torch.tensor([[3.0], [0.0], [0.0]]))
        self.register_buffer("gains", torch.randn(2, 4))
        self.register_buffer("average", torch.eye(4).repeat(2, 1) / 2)
        self.register_buffer("centre", torch.block_diag(*2 * [torch.eye(4) - 1 / 4]))
        self.register_buffer("mix", mix)
        self.register_buffer("logs", mix.mT.log())

    def forward(self, {inputs}):
        means, sums, table = self.means, self.sums, self.table
        kept, places, upper = self.kept, self.places, self.upper
        zero, flat, layers, one, wide = self.zero, self.flat, self.layers, self.one, self.wide
        norm, rms, first, gains = self.norm, self.rms, self.first, self.gains
        average, centre, mix, logs = self.average, self.centre, self.mix, self.logs
        {hidden}
        {code}
        return self.head(h)
"""


def inputs_of(code: str) -> list[str]:
    """The inputs that a forward of this code takes."""
    if re.search(r"\bids\b", code):
        return ["ids"]
    return ["x", *(name for name in ("positive", "turn") if re.search(rf"\b{name}\b", code))]


def data_of(line: Rewriting, names: Sequence[str], x: np.ndarray) -> dict[str, np.ndarray]:
    """What a client gives, in the clear."""
    turned = np.cos(x) if "cos" in line.instead else np.sin(x)
    ids = (np.abs(1000 * x[..., 0]) % 40).astype(np.int64)
    every = {"x": x, "ids": ids, "positive": (x > 0).astype(np.float32), "turn": turned}
    return {name: every[name] for name in names}


def model_of(code: str, folder: Path) -> tuple[Any, list[str]]:
    """A user's module with a line of code in its forward, read from a file, and its inputs."""
    names = inputs_of(code)
    hidden = "" if names == ["ids"] else "h, k = self.a(x), self.b(x)"
    file = folder / "users_module.py"
    file.write_text(MODULE.format(inputs=", ".join(names), hidden=hidden, code=code))
    spec = importlib.util.spec_from_file_location("users_module", file)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model().eval(), names


def x_of(count: int) -> np.ndarray:
    return RANDOM.normal(size=(count, TOKENS, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.instead)
def test_what_is_refused_names_its_line_and_what_to_write(line: Rewriting, tmp_path: Path) -> None:
    model, names = model_of(line.instead, tmp_path)
    data = data_of(line, names, x_of(24))
    with pytest.raises(AtlasError, match="cannot be compiled") as caught:
        atlasc.compile(model, data, recipe="is", target="sim")
    assert f"users_module.py:{MODULE[: MODULE.index('{code}')].count(chr(10)) + 1}" in str(
        caught.value.where
    )
    assert str(line) in caught.value.remedy and "aten_rules" not in caught.value.remedy


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.write)
def test_what_is_written_instead_has_the_same_values(line: Rewriting, tmp_path: Path) -> None:
    refused, _ = model_of(line.instead, tmp_path)
    written, names = model_of(line.write, tmp_path)
    data, fresh = data_of(line, names, x_of(24)), x_of(4)
    program = atlasc.compile(written, data, recipe="is", target="sim")
    answer = program.run(data_of(line, names, fresh))
    (found,) = answer.outputs.values()
    asked = data_of(line, inputs_of(line.instead), fresh)
    with torch.no_grad():
        wanted = refused(**{name: torch.tensor(array) for name, array in asked.items()}).numpy()
    kept = [row for row in range(len(fresh)) if row not in answer.refused]
    assert len(kept) > 1
    assert np.abs(found - wanted)[kept].max() < 1e-2 * wanted.std()


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Ops without a rule")[2]
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (.*?) \|$", text, re.MULTILINE)
    assert sorted(Rewriting(*(cell.strip() for cell in row)) for row in rows) == LINES
