"""What a setting costs and how wrong it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.approximation.approximate import apply_settings, depth_of
from atlasc.search import search_problem
from atlasc.search.strategy import SearchRun
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.simulation.torch_simulator import TorchSimulator

GOOD = ((7, 6, 0, 0, 0, 7, 7, 7), (6, 6, 6, 0, 0, 6, 7, 8))
OTHER = ((7, 7, 0, 0, 0, 5, 5, 5), (1, 1, 1, 1, 1, 1, 1, 1))


def blas_rounds_rows_alike() -> bool:
    """Whether a row of a product has the same bits whatever rows are beside it. OpenBLAS has other
    kernels for one row, and with AVX2 (Haswell, Zen) for the last rows of a block; which ones
    depends on the shape.
    """
    generator = np.random.default_rng(0)
    for inner, outer in product((4, 8, 16, 24, 32, 64), repeat=2):
        rows = generator.normal(size=(40, inner)).astype(np.float32)
        weight = generator.normal(size=(inner, outer)).astype(np.float32)
        whole = rows @ weight
        if not all(np.array_equal(rows[:n] @ weight, whole[:n]) for n in range(1, len(rows))):
            return False
    return True


def by_settings(objective, settings):
    return {point.settings: point for point in objective.points(settings)}


FLOAT32 = 1e-3
"""Relative difference of an error of 1e-4 whose outputs differ in the last bits of float32."""


def test_the_error_is_that_of_the_tokens_that_a_mask_keeps(problem) -> None:
    point = problem.objective().evaluate(GOOD)
    module = apply_settings(problem.module, GOOD, problem.calibration)
    simulated = PolynomialSimulator(module, np.float64).run(problem.arrays).outputs["y"]
    exact = interpret(problem.module, problem.arrays)["y"]
    kept = problem.arrays["mask"].astype(bool)
    assert point.error == pytest.approx(np.abs(simulated - exact)[kept].mean(), rel=1e-2)
    assert 0 < point.error < 0.1


def test_costs_are_those_of_the_module(problem) -> None:
    point = problem.objective().evaluate(GOOD)
    depth = depth_of(apply_settings(problem.module, GOOD, problem.calibration))
    # Softmax 5 + sum (p + 5), norms p + 8, activation p + 1.
    assert point.depth == depth.blocks == (28 + 15 + 15 + 8) + (38 + 14 + 15 + 9)
    # Softmax 4 + sum (p + 3), norms p + 2, activation p.
    nominal = depth_of(apply_settings(problem.module, GOOD))
    assert nominal.levels == (23 + 9 + 9 + 7) + (31 + 8 + 9 + 8)
    assert point.levels == depth.levels <= nominal.levels


def test_a_gpu_finds_the_same(problem, monkeypatch) -> None:
    expected = by_settings(problem.objective(), [GOOD, OTHER])
    monkeypatch.setattr(search_problem, "simulator", lambda p: TorchSimulator(p.module, "cpu"))
    found = problem.objective()
    for settings, point in by_settings(found, [GOOD, OTHER]).items():
        other = expected[settings]
        assert point.exploded_at == other.exploded_at
        assert point.error == pytest.approx(other.error, abs=1e-6)
        assert point.depth == other.depth


def test_equal_settings_are_simulated_once(problem, monkeypatch) -> None:
    runs = []
    run = PolynomialSimulator.run
    monkeypatch.setattr(PolynomialSimulator, "run", lambda *a, **k: runs.append(a) or run(*a, **k))
    search = SearchRun(problem, 4)
    runs.clear()
    points = search.points_of([GOOD, OTHER, GOOD])
    assert search.points_of([GOOD]) == points[:1]
    assert len(runs) == 2
    assert points[0] is points[2]


def test_inputs_far_outside_the_ranges_make_a_setting_invalid(problem) -> None:
    from dataclasses import replace

    far = {name: x * 1e3 if x.dtype.kind == "f" else x for name, x in problem.arrays.items()}
    far["mask"] = problem.arrays["mask"]
    point = replace(problem, arrays=far).objective().evaluate(((5, 5, 5, 5, 7, 9, 9, 9),) * 2)
    assert point.error == np.inf
    assert not point.valid


def test_narrow_ranges_alone_do_not_let_a_smooth_function_explode(problem) -> None:
    """Terms of a fit that do not count inside its range would count outside it."""
    from dataclasses import replace

    ranges = tuple(
        replace(r, low=r.low + 0.1 * (r.high - r.low), high=r.high - 0.1 * (r.high - r.low))
        for r in problem.calibration.ranges
    )
    narrow = replace(problem, calibration=replace(problem.calibration, ranges=ranges))
    assert narrow.objective().evaluate(((5, 5, 5, 5, 7, 9, 9, 9),) * 2).error < 1e-4


def test_the_proxy_sees_the_first_layers_only(problem) -> None:
    proxy = problem.objective(layers=1)
    same_start = (GOOD[0], (6, 6, 6, 0, 0, 1, 1, 1))
    assert proxy.evaluate(GOOD).error == proxy.evaluate(same_start).error
    whole = problem.objective()
    assert whole.evaluate(GOOD).error < whole.evaluate(same_start).error


def test_an_op_can_be_left_exact(problem) -> None:
    objective = problem.objective()
    exact = (-1,) * 8
    alone = ((*exact[:7], 5), exact)
    point = objective.evaluate(alone)
    assert (point.depth, point.levels) == (6, 5)
    assert point.error > 0
    assert objective.evaluate((exact, exact)).error < 1e-6
    assert objective.space.decode([*exact[:7], 5, 3, -1, 2, 0, 0, *exact[5:]]) == alone
    with pytest.raises(AtlasError, match="leave nn.softmax exact"):
        apply_settings(problem.module, alone, problem.calibration)


def test_points_do_not_depend_on_how_inputs_are_divided(problem, monkeypatch) -> None:
    from dataclasses import replace

    monkeypatch.setattr("atlasc.simulation.simulate.SMALLEST_PART", 1)
    # Some values leave the ranges: polynomials of many terms are then evaluated in full.
    ranges = tuple(
        replace(r, low=r.low + 0.1 * (r.high - r.low), high=r.high - 0.1 * (r.high - r.low))
        for r in problem.calibration.ranges
    )
    narrow = replace(problem, calibration=replace(problem.calibration, ranges=ranges), device="cpu")
    space = narrow.objective().space
    vectors = space.random(60, np.random.default_rng(0))
    vectors[:20] = np.maximum(vectors[:20], 5)  # high degrees
    settings = sorted({space.decode(vector) for vector in vectors})
    found = [
        SearchRun(replace(narrow, threads=threads, memory=memory), 60).points_of(settings)
        for threads, memory in ((1, 0), (1, 1 << 20), (2, 1 << 20), (3, 0))
    ]
    assert any(point.valid for point in found[0]) and any(not point.valid for point in found[0])
    if blas_rounds_rows_alike():
        assert found[1:] == found[:1] * 3
    for points in found[1:]:
        for first, point in zip(found[0], points, strict=True):
            assert replace(point, error=first.error) == first
            assert point.error == pytest.approx(first.error, rel=FLOAT32)


def test_inputs_have_shares_of_the_error(problem) -> None:
    shares = (1.0, 5.0, 2.0)
    each = [
        replace(problem, arrays={n: a[i : i + 1] for n, a in problem.arrays.items()})
        for i in range(3)
    ]
    errors = [one.objective().evaluate(GOOD).error for one in each]
    kept = problem.arrays["mask"].sum(axis=1)
    expected = np.average(errors, weights=np.multiply(shares, kept))
    found = replace(problem, shares=shares).objective().evaluate(GOOD).error
    assert found == pytest.approx(expected, rel=1e-5 if blas_rounds_rows_alike() else FLOAT32)
    assert found != pytest.approx(problem.objective().evaluate(GOOD).error, rel=1e-3)
