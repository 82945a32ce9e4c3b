"""Inputs of several commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny


@pytest.fixture
def wild(tiny: Tiny, tmp_path: Path) -> Path:
    """Three images, of which the second is far brighter than any that was calibrated on."""
    with np.load(tiny.data) as file:
        pixels = file["pixel_values"][:3]
    pixels[1] *= 4
    path = tmp_path / "wild.npz"
    np.savez(path, pixel_values=pixels, labels=np.array([0, 1, 2]))
    return path
