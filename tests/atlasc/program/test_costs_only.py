"""Costs are counted without plaintexts and without terms: exactly as on recorded functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from short_text import ATTENTION, poly

from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.program.costs import live_ciphertexts, program_costs, shape_of
from atlasc.program.counting_engine import Counted, CountingEngine, Counts
from atlasc.program.engine import Engine
from atlasc.program.execute import Executor, Functions
from atlasc.program.function import Function
from atlasc.program.kernels.context import nothing
from atlasc.program.live_engine import LiveEngine, Peaks
from atlasc.program.rotation_plan import RotationPlan
from atlasc.program.transform_work import (
    LEAST_REPEATS,
    MOST_SUMS,
    SHORT_REPEATS,
    TRANSFORMS,
    TransformTerm,
    TransformWork,
    repeats_of,
)

LAYERS = """%h = poly.linear %x {weight = @up, bias = @b}
    %a = poly.chebyshev %h {coefficients = @c, domain = [-1.0, 1.0]}
    %d = poly.linear %a {weight = @down}
    %r = poly.add %d, %x
    %m = poly.center %r
    %z = poly.mul %m, %m
    %y = poly.linear %z {weight = @down2}
    poly.output %y {name = "y"}"""


class EveryProduct(CountingEngine):
    """Counts the products of a sum one after the other."""

    dot_plain = Engine.dot_plain


class EveryCall(LiveEngine):
    """Plays every instruction of every call, one product after the other."""

    play = CountingEngine.play
    dot_plain = Engine.dot_plain


def arrays(inputs: int, hidden: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "up": random.normal(size=(hidden, inputs)),
        "b": random.normal(size=hidden),
        "down": random.normal(size=(inputs, hidden)),
        "down2": random.normal(size=(5, inputs)),
        "c": random.normal(size=8),
    }


class Case(NamedTuple):
    """A small program: attention, or layers of some features; with levels and a plan, or without.

    Attributes:
        features: of the input, and in between; None for attention.
        levels: of its placement; None for none.
        seed: of the plan of rotations; None for none.
    """

    features: tuple[int, int] | None
    tokens: int
    slots: int
    low: bool
    levels: int | None
    seed: int | None

    def module(self) -> Module:
        body, shape, symbols = ATTENTION, (1, 3, 6), dict[str, np.ndarray]()
        if self.features is not None:
            inputs, hidden = self.features
            body, shape, symbols = LAYERS, (1, self.tokens, inputs), arrays(inputs, hidden)
        module = run_passes(poly(body, symbols, shape), [Pack(self.slots, self.low)])
        if self.levels is None:
            return module
        module = run_passes(module, [PlaceBootstraps(self.levels, batch=2)])
        return module if self.seed is None else with_some_plan(module, self.seed)


CASES = st.builds(
    Case,
    st.none() | st.tuples(st.integers(2, 9), st.integers(1, 40)),
    st.integers(1, 5),
    st.sampled_from([64, 256, 2048]),
    st.booleans(),
    st.none() | st.integers(8, 14),
    st.none() | st.integers(0, 99),
)


def with_some_plan(module: Module, seed: int) -> Module:
    """The program with a plan of keys, keys of lower levels, shared keys and compositions."""
    random = np.random.default_rng(seed)
    keys, composed, shared = dict[int, int](), dict[int, tuple[int, int]](), {1}
    for amount, level in program_costs(module).total.rotation_levels.items():
        way = random.choice(["key", "lower key", "bootstrap", "composed"])
        if way in ("key", "lower key"):
            keys[amount] = level if way == "key" else int(random.integers(level + 1))
        if way != "key" and amount > 1:
            shared |= {amount - 1} if way != "bootstrap" else {amount}
            composed[amount] = (1, amount - 1)
    plan = RotationPlan(keys, frozenset(shared), composed)
    return replace(module, attributes=module.attributes | plan.attributes())


def peaks_of_every_call(module: Module) -> Peaks:
    """The peaks of memory by the recorded functions, op by op as in a run."""
    shape = shape_of(module)
    engine = EveryCall(*shape)
    executor = Executor(engine, Functions(module, shape))
    last = {value: n for n, op in enumerate(module.ops) for value in op.operands}
    last |= {op.operands[0]: len(module.ops) for op in module.outputs}
    inputs = [
        [engine.encrypt(None, op.attributes.get("level")) for _ in range(count)]
        for op in module.inputs
        if (count := op.value.ciphertext.ciphertexts)
    ]
    values: dict[Any, Any] = {}
    for number, op in enumerate(module.ops):
        if op.name == "ckks.input":
            values[op.value] = inputs[module.inputs.index(op)]
        elif op.result is not None:
            values[op.value] = executor.apply(op, [values[one] for one in op.operands])
        for value in op.operands:
            if last[value] == number:
                values.pop(value, None)
    return engine.peaks


def by_size(peaks: Peaks) -> list[tuple[TransformWork | None, Counter[int]]]:
    return sorted(((work, +Counter(peak)) for work, peak in peaks.items()), key=str)


def counted(function: Function) -> Counts:
    """The costs of a recorded function."""
    engine = EveryProduct(*function.shape)
    engine.play(function, [[Counted(level) for level in one] for one in function.levels])
    return engine.total()


@given(CASES)
def test_counts_are_those_of_recorded_functions(case: Case) -> None:
    module = case.module()
    costs = program_costs(module)
    recorded = {op: counted(one) for op, one in Functions(module, shape_of(module)).calls()}
    assert costs.per_op == {op: recorded.get(op, Counts()) for op in module.ops}


@given(CASES)
@example(Case((9, 40), 3, 64, True, None, None))  # several operands and giant steps
def test_terms_of_one_sum_are_neighbours(case: Case) -> None:
    module = case.module()
    for _, function in Functions(module, shape_of(module)).calls():
        for one in function.code:
            if one.primitive in TRANSFORMS:
                sums = [key for key, _ in groupby(one.numbers[1::2])]
                assert len(sums) == len(set(sums))


@given(CASES)
def test_memory_is_that_of_every_call(case: Case) -> None:
    module = case.module()
    assert by_size(live_ciphertexts(module)) == by_size(peaks_of_every_call(module))


VALUES = st.sampled_from([nothing(1), nothing(8), nothing(16), 0.5])
NUMBERS = st.integers(0, 3)
TERM = st.builds(TransformTerm, st.integers(-9, 70), st.integers(-2, 40), VALUES, NUMBERS, NUMBERS)


@given(st.lists(TERM, min_size=1, max_size=99), st.sampled_from([3, MOST_SUMS]))
def test_work_of_terms_is_that_of_one_after_the_other(
    terms: list[TransformTerm], held: int
) -> None:
    slots, found = 64, TransformWork.of(3, terms, 64, held)
    sums = [
        [repeats_of(term.value) for term in some]
        for _, some in groupby(terms, lambda term: (term.result, term.giant % slots))
    ]
    sizes = [sum(1 / n if n >= SHORT_REPEATS else 1.0 for n in one) for one in sums]
    used = {(term.operand, term.baby % slots) for term in terms}
    dense = sum(n < LEAST_REPEATS for one in sums for n in one)
    giants = [giant for (_, giant), _ in groupby(terms, lambda t: (t.result, t.giant % slots))]
    assert found == TransformWork(
        3,
        operands=len({operand for operand, baby in used if baby}),
        babies=sum(baby > 0 for _, baby in used),
        steps=len(sums),
        giants=sum(giant > 0 for giant in giants),
        results=1 + max(term.result for term in terms),
        products=len(terms) - dense if dense else len(used) * len(sums),
        dense=dense,
        plaintexts=max(sum(sizes[at : at + held]) for at in range(0, len(sizes), held)),
        amounts=frozenset({*giants, *(baby for _, baby in used)} - {0}),
        most_sums=held,
    )


def test_a_module_says_how_many_sums_its_device_holds() -> None:
    body, symbols = LAYERS, arrays(9, 40)
    found = {}
    for held in (2, MOST_SUMS):
        module = run_passes(
            poly(body, symbols, (1, 3, 9)), [Pack(64, True, held), PlaceBootstraps(9, batch=2)]
        )
        counts = program_costs(module).total
        works = [work for work in live_ciphertexts(module) if work is not None]
        found[held] = (
            counts.count("transform_baby"), counts.count("transform_giant"),
            max(work.sums - work.results for work in works), module.attributes.get("most_sums"),
        )  # fmt: skip
    few, many = found.values()
    assert few[0] > many[0] and few[1] == many[1]
    assert few[2] < many[2] and few[3:] + many[3:] == (2, None)
