"""Degrees and bootstraps together, against every combination of candidates on small models."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.passes.approximation.algorithms import from_attribute
from atlasc.passes.approximation.algorithms.chebyshev import SoftmaxApproximation
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.latency.model import LatencyModel, LatencyTarget
from atlasc.passes.search.latency_front import Alternative, latency_front
from atlasc.targets.costs import costs_of
from atlasc.targets.desilo.parameters import DesiloParameters


def choose(levels: int, slots: int) -> Any:
    return DesiloParameters.choose(levels, slots)


def problem(shape: Shape, seed: int) -> tuple[LatencyModel, dict[str, Approximation]]:
    module = Builder(shape, seed).build()
    approximate(module, inputs_for(shape, seed))
    reference = {
        op.value.name: from_attribute(op.name, op.attributes["approximation"])
        for op in module.ops
        if op.definition.nonlinear
    }
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
    monkeypatch.setattr("atlasc.passes.search.latency_front.RESOLUTION", 1024)
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
