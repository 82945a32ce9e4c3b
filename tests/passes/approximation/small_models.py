"""Gives these tests the small Transformers of the lowering tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "lowering"))

from small_transformers import Builder, Shape, inputs_for

__all__ = ["SHAPES", "Builder", "Shape", "inputs_for", "session_cache"]

SHAPES = {
    "encoder": Shape(layers=2, batch=3, mask=True, pre_norm=False, classes=0),
    "vision": Shape(layers=2, batch=3, classes=3),
    "decoder": Shape(layers=2, batch=3, rms=True, causal=True, mask=True, classes=0),
}


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    """Keeps the fits of these tests out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLASC_CACHE", str(tmp_path_factory.mktemp("fits")))
        yield
