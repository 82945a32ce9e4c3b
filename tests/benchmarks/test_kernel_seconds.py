"""The model of kernel seconds: how far it is from what an H200 was measured at."""

from __future__ import annotations

import pytest

from benchmarks.engine.kernel_seconds import (
    CONVERTED,
    DOUBLES,
    FITTED,
    INTEGERS,
    LIMB,
    Launch,
    Recorded,
    errors,
    fitted,
    kind_of,
    recorded,
)
from benchmarks.engine.scaled_costs import errors_of_primitives, raised


@pytest.fixture(scope="module")
def of() -> Recorded:
    return recorded()


def test_bootstraps_that_the_model_is_not_fitted_to(of: Recorded) -> None:
    found = errors(of)
    assert set(found) == {"bootstrap_narrow_one", "bootstrap_narrow_two"}
    assert all(share == pytest.approx(1.0, abs=0.01) for share in found.values())


def test_the_profile_and_what_it_leaves(of: Recorded) -> None:
    model = of.model()
    kernels = sum(one.times * model.of(one) for one in of.profile)
    measured = sum(one.times * one.microseconds for one in of.profile) * 1e-6
    assert kernels == pytest.approx(measured, rel=0.03)
    for name in FITTED:
        seconds = model.of_bootstrap(of.bootstraps[name])
        assert seconds * 1e3 == pytest.approx(of.milliseconds[name])
    assert 0 < model.gap < 1e-5 and 0 < model.start < 2e-3


def test_primitives_that_the_model_is_not_fitted_to(of: Recorded) -> None:
    found = errors_of_primitives(of)
    for name in ("rotate", "mul", "square", "rotate_hoisted", "transform_giant", "hoist"):
        assert all(0.9 <= share <= 1.6 for share in found[name].values()), name


def test_prices_are_raised_to_what_was_measured() -> None:
    found = raised({"a": {1: 2.0, 8: 3.0}, "b": {1: 1.0, 8: 1.0}}, {"a": {1: 0.5, 7: 1.5}})
    assert found == {"a": {1: 4.0, 8: 3.0}, "b": {1: 1.0, 8: 1.0}}


def test_kernels_of_today(of: Recorded) -> None:
    before, today = of.model(), of.today()
    halves = Launch(1, "Pass of ResidueVectors", 15360, 0, forwards=480 * LIMB)
    assert before.of(halves) - today.of(halves) == pytest.approx(240 * (INTEGERS - DOUBLES))
    # Conversions are those of the profile, with fewer seconds for their products alone.
    passed = Launch(1, halves.kernel, 9472, 2e8, forwards=296 * LIMB, products=2e8)
    converted = passed._replace(kernel="Conversions")
    saved = today.kinds["pass"]["products"] * 2e8 * (1 - CONVERTED)
    assert today.of(passed) - today.of(converted) == pytest.approx(saved)
    # What does the work of two kernels takes no less than either.
    rows = Launch(1, "KeyRows of EachProduct", 4096, 1e8, forwards=64 * LIMB)
    alone = rows._replace(kernel="InnerProduct"), rows._replace(kernel=halves.kernel, bytes=0)
    assert today.of(rows) == pytest.approx(sum(today.of(one) for one in alone))
    slow = [one for one in of.profile if kind_of(one.kernel) == "rest" and one.bytes > 2e7]
    assert all(today.of(one) >= 0.999e-6 * one.microseconds for one in slow)


def test_constants_are_those_of_the_launches() -> None:
    kernels = {"pass": "Pass of ResidueVectors", "keys": "InnerProduct", "sums": "InnerProducts",
               "tiles": "RotatedTiles", "rest": "Combine"}  # fmt: skip
    launches = [
        Launch(1, kernel, 1, size * 1e6, *counts, microseconds=5 + size)
        for kernel in kernels.values()
        for size, counts in (
            (10, (0, 0, 0, 0, 0)), (20, (7, 0, 0, 5, 0)), (30, (0, 3, 0, 0, 9)),
            (40, (0, 0, 8, 0, 0)), (50, (1, 1, 1, 1, 1)), (60, (2, 0, 5, 2, 0)),
        )
    ]  # fmt: skip
    model = fitted(launches)
    for one in launches:
        assert model.of(one) == pytest.approx(one.microseconds * 1e-6, rel=1e-6)
