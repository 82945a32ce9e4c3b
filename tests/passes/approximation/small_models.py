"""Gives these tests the small Transformers of the lowering tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lowering"))

from small_transformers import Builder, Shape, inputs_for

__all__ = ["SHAPES", "Builder", "Shape", "inputs_for"]

SHAPES = {
    "encoder": Shape(layers=2, batch=3, mask=True, pre_norm=False, classes=0),
    "vision": Shape(layers=2, batch=3, classes=3),
    "decoder": Shape(layers=2, batch=3, rms=True, causal=True, mask=True, classes=0),
}
