"""A small problem to search, and a cache of fits apart from the user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "lowering"))

from small_transformers import Builder, Shape, inputs_for

from atlasc.passes.approximation.calibration import calibrate
from atlasc.passes.search.problem import SearchProblem


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLASC_CACHE", str(tmp_path_factory.mktemp("fits")))
        yield


@pytest.fixture(scope="session")
def problem():
    shape = Shape(layers=2, batch=3, mask=True, pre_norm=False, classes=0)
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    return SearchProblem(module, calibrate(module, arrays, margin=0.2), arrays, threads=1)
