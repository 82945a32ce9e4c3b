"""Degrees and bootstraps together, against every combination of candidates on small models."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.latency.model import LatencyModel, LatencyTarget, TimedChain
from atlasc.polynomials.algorithms.chebyshev import SoftmaxApproximation
from atlasc.polynomials.description import Approximation, carried_by
from atlasc.search.latency_front import Alternative, latency_front
from atlasc.targets.costs import costs_of
from atlasc_comparisons.desilo.parameters import DesiloParameters


def choose(levels: int, slots: int) -> Any:
    return DesiloParameters.choose(levels, slots)


def problem(shape: Shape, seed: int) -> tuple[LatencyModel, dict[str, Approximation]]:
    module = Builder(shape, seed).build()
    approximate(module, inputs_for(shape, seed))
    reference = {op.value.name: carried_by(op) for op in module.ops if op.definition.nonlinear}
    return LatencyModel(module, LatencyTarget(choose, costs_of), reference), reference


def ways(one: Approximation, exponent: int) -> Approximation:
    if isinstance(one, SoftmaxApproximation):
        return replace(one, iterations=(exponent,) * (2 if exponent > 4 else 1))
    return replace(one, degree=2**exponent - 1)  # type: ignore[call-arg]


def candidates(
    names: tuple[str, ...], reference: dict[str, Approximation], rng: np.random.Generator
) -> list[Alternative]:
    exponents = [int(rng.integers(low, high)) for low, high in ((1, 3), (3, 6), (6, 8))]
    return [
        Alternative({n: ways(reference[n], e) for n in names}, float(rng.integers(1, 9)) * 4.0**-e)
        for e in exponents
    ]


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_front_equals_every_combination(pre_norm: bool, seed: int, monkeypatch) -> None:
    """One layer: some combinations fit without a bootstrap, others do not."""
    monkeypatch.setattr("atlasc.search.latency_front.RESOLUTION", 1024)
    shape = Shape(layers=1, pre_norm=pre_norm, classes=0)
    model, reference = problem(shape, seed)
    rng = np.random.default_rng(seed)
    names = list(reference)
    fixed = {name: reference[name] for name in names[4:]}
    groups = [candidates((name,), reference, rng) for name in names[:4]]
    found = latency_front(model, groups, fixed)
    kinds = set()
    for choice in itertools.product(*(range(len(group)) for group in groups)):
        chosen = [group[index] for group, index in zip(groups, choice, strict=True)]
        approximations = dict(fixed)
        for one in chosen:
            approximations.update(one.approximations)
        seconds, error = model.seconds(approximations), math.fsum(one.error for one in chosen)
        kinds.add(model.parameters(approximations).bootstrap_level)
        allowed = error * (1 + 2 * len(groups) / 1024)
        assert any(p.cost <= seconds + 1e-6 and p.error <= allowed for p in found)
    assert kinds == {None, 14}
    for point in found:
        approximations = dict(fixed)
        for group, index in zip(groups, point.choices, strict=True):
            approximations.update(group[index].approximations)
        assert point.cost == model.seconds(approximations)
    errors = [point.error for point in found]
    assert errors == sorted(errors, reverse=True) and len(set(errors)) == len(errors)


def test_a_group_may_hold_ops_of_several_segments() -> None:
    model, reference = problem(Shape(layers=2, pre_norm=False, classes=0), 1)
    rng = np.random.default_rng(0)
    names = list(reference)
    groups = [candidates((names[0], names[4]), reference, rng)]
    groups += [candidates((name,), reference, rng) for name in (*names[1:4], *names[5:])]
    found = latency_front(model, groups)
    assert len(found) > 5
    for point in found[:: len(found) // 4]:
        approximations = dict[str, Approximation]()
        for group, index in zip(groups, point.choices, strict=True):
            approximations.update(group[index].approximations)
        assert point.cost == model.seconds(approximations)


def shared_groups(
    seed: int,
) -> tuple[LatencyModel, list[list[Alternative]], dict[str, Approximation]]:
    """A model in which one group holds ops of the first and of the last segment but one."""
    model, reference = problem(Shape(layers=1, pre_norm=False, classes=0), seed)
    rng, names = np.random.default_rng(seed), list(reference)
    groups = [candidates((names[0], names[3]), reference, rng)]
    groups += [candidates((name,), reference, rng) for name in names[1:3]]
    return model, groups, {name: reference[name] for name in names[4:]}


def every_way(
    model: LatencyModel, groups: list[list[Alternative]], fixed: dict[str, Approximation]
) -> list[tuple[float, float]]:
    """Seconds and error of every combination."""
    found = []
    for way in itertools.product(*groups):
        chosen = dict(fixed)
        for one in way:
            chosen.update(one.approximations)
        found.append((model.seconds(chosen), math.fsum(one.error for one in way)))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_what_is_dropped_between_segments_is_beaten(seed: int, monkeypatch) -> None:
    monkeypatch.setattr("atlasc.search.latency_front.RESOLUTION", 1024)
    model, groups, fixed = shared_groups(seed)
    found = latency_front(model, groups, fixed)
    for seconds, error in every_way(model, groups, fixed):
        allowed = error * (1 + 2 * len(groups) / 1024)
        assert any(p.cost <= seconds + 1e-6 and p.error <= allowed for p in found)


def test_combinations_have_a_bound_and_it_is_said(monkeypatch) -> None:
    """Where there are too many, few tables are computed, and points are what they claim to be."""
    model, groups, fixed = shared_groups(1)
    every = every_way(model, groups, fixed)
    for name, value in (("MOST_COMBINATIONS", 8), ("MOST_OPEN", 2)):
        monkeypatch.setattr(f"atlasc.search.latency_front.{name}", value)
    asked: list[int] = []
    table = TimedChain.table
    monkeypatch.setattr(
        TimedChain, "table", lambda self, n, given: asked.append(n) or table(self, n, given)
    )
    said: list[str] = []
    found = latency_front(model, groups, fixed, said.append)
    chains = sum(len(packing.parameters_from(0)) for packing in model.packings)
    segments, alternatives = len(set(asked)), sum(map(len, groups))
    points = 8 * len(groups)  # their seconds are predicted again
    assert len(asked) <= chains * segments * (8 + alternatives + 1 + points)
    assert "at most 8 are computed" in said[0]
    assert {(p.cost, p.error) for p in found} <= set(every)
    cheapest, accurate = min(every), min(error for _, error in every)
    assert found[0].cost <= 1.2 * cheapest[0] and found[-1].error <= 4 * accurate


def test_the_cut_of_a_stream_that_is_an_output_is_bounded() -> None:
    """A residual stream that is an output: the whole program is one segment of ten groups."""
    model, reference = problem(Shape(layers=2, pre_norm=True, classes=0, final_norm=False), 0)
    for packing in model.packings:
        assert len(packing.chain(packing.parameters(reference)).names) <= 2
    rng, names = np.random.default_rng(0), list(reference)
    groups = [3 * candidates((name,), reference, rng) for name in names]
    said: list[str] = []
    assert len(latency_front(model, groups, None, said.append)) > 3
    assert said and "43,046,721 combinations" in said[0]
