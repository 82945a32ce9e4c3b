"""The simulator follows the device."""

from __future__ import annotations

import numpy as np
import pytest
from small_transformers import SHAPES, Builder

from atlasc.ir.errors import AtlasError
from atlasc.passes.simulation import engines
from atlasc.passes.simulation.simulate import PolynomialSimulator

MODULE = Builder(SHAPES["vision"], 1).build()


def test_numpy_where_there_is_no_gpu(monkeypatch) -> None:
    monkeypatch.setattr(engines, "_has_gpu", lambda: False)
    assert isinstance(engines.simulator(MODULE, threads=1), PolynomialSimulator)
    with pytest.raises(AtlasError, match="there is no device 'cuda'"):
        engines.simulator(MODULE, device="cuda")


def test_torch_where_there_is_one(monkeypatch) -> None:
    monkeypatch.setattr(engines, "_has_gpu", lambda: True)
    chosen = engines.simulator(MODULE)
    assert isinstance(chosen, engines.TorchSimulator)
    assert chosen.device == "cuda"
    assert isinstance(engines.simulator(MODULE, device="cpu"), PolynomialSimulator)
    assert isinstance(engines.simulator(MODULE, np.float64), PolynomialSimulator)
    with pytest.raises(AtlasError, match="float32 only"):
        engines.simulator(MODULE, np.float64, device="cuda")
