"""A small problem to search."""

from __future__ import annotations

import pytest
from small_transformers import Builder, Shape, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.search.search_problem import Objective, SearchProblem
from atlasc.search.strategy import EVALUATING


@pytest.fixture(scope="session")
def problem():
    shape = Shape(layers=2, batch=3, mask=True, pre_norm=False, classes=0)
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    return SearchProblem(module, calibrate(module, arrays, margin=0.2), arrays, threads=1)


@pytest.fixture
def interrupt():
    """Progress of a search whose user loses patience after 60 evaluations."""

    def after_sixty(report):
        if report.work == EVALUATING and report.done >= 60:
            raise KeyboardInterrupt

    return after_sixty


@pytest.fixture
def evaluated(monkeypatch):
    """The settings that are really evaluated, and not taken from a journal."""
    seen = []
    points = Objective.points

    def spy(self, settings):
        seen.extend(settings)
        return points(self, settings)

    monkeypatch.setattr(Objective, "points", spy)
    return seen
