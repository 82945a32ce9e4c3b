"""A module with its weights: IR text and safetensors side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import load_module, save_module
from atlasc.ir.verifier import verify
from tests.fuzz.reader import Reader

TEXT = """module @tiny : nn {
  symbol @w : float32[2x2]
  symbol @layer.bias : float64[2]
  %x = nn.input {name = "x", shape = [1, 1, 2], side = "server", dtype = "f64"} :
    tensor<1x1x2xf64, server>
  %y = nn.linear %x {weight = @w, bias = @layer.bias} loc "layer" : tensor<1x1x2xf64, server>
  nn.output %y {name = "y"}
}
"""


def _seeds(folder: Path) -> list[Path]:
    weights = {"w": np.ones((2, 2), np.float32), "layer.bias": np.array([1.0, -2.0])}
    (folder / "model").mkdir()
    save_module(parse(TEXT, weights), folder / "model" / "tiny.air")
    return [folder / "model"]


def _read(folder: Path) -> object:
    module = load_module(folder / "tiny.air")
    verify(module)
    return sorted(module.symbols)


READER = Reader("stored-ir", _seeds, _read, 1000)
