"""The simulator follows the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.search import search_problem
from atlasc.search.search_problem import simulator
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.simulation.torch_simulator import TorchSimulator


def test_numpy_where_there_is_no_gpu(problem, monkeypatch) -> None:
    monkeypatch.setattr(search_problem, "_has_gpu", lambda: False)
    assert isinstance(simulator(problem), PolynomialSimulator)
    with pytest.raises(AtlasError, match="there is no device 'cuda'"):
        simulator(replace(problem, device="cuda"))


def test_torch_where_there_is_one(problem, monkeypatch) -> None:
    monkeypatch.setattr(search_problem, "_has_gpu", lambda: True)
    chosen = simulator(problem)
    assert isinstance(chosen, TorchSimulator)
    assert chosen.device == "cuda"
    assert isinstance(simulator(replace(problem, device="cpu")), PolynomialSimulator)
    assert isinstance(simulator(replace(problem, dtype=np.float64)), PolynomialSimulator)
    with pytest.raises(AtlasError, match="float32 only"):
        simulator(replace(problem, dtype=np.float64, device="cuda"))
