"""Lanes that go in step compute the same, and stand side by side."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.program.bootstrap.circuit import circuit
from atlasc.program.function import EngineParameters, Instruction
from atlasc.program.lanes import in_step
from atlasc.program.record import Recorder, Register
from atlasc.targets.sim import SimEngine

SLOTS, LEVELS = 8, 9


def played(code: tuple[Instruction, ...], inputs: int) -> dict[int, list[float]]:
    """All registers that instructions write on plain vectors."""
    engine = SimEngine(SLOTS, LEVELS)
    values = {
        number: engine.encrypt(np.linspace(0.1, 0.9, SLOTS) + number / 7)
        for number in range(inputs)
    }
    for one in code:
        operands = [values[number] for number in one.operands]  # a KeyError: it is not written yet
        made = getattr(engine, one.primitive)(*operands, *one.plaintexts, *one.numbers)
        (values[one.results[0]],) = (made,)
    return {number: engine.decrypt(value).tolist() for number, value in values.items()}


def runs(code: tuple[Instruction, ...]) -> list[tuple[str, int]]:
    return [(kind, len(list(some))) for kind, some in groupby(code, lambda one: one.primitive)]


def recorded(lanes: int, *, chained: bool = False) -> tuple[Instruction, ...]:
    """x^4 + rotated x^2 of each operand, and with ``chained`` each begins with the one before."""
    engine = Recorder(EngineParameters(SLOTS, LEVELS))
    operands, before = [engine.register(LEVELS) for _ in range(lanes)], None
    for x in operands:
        begun = engine.add(x, before) if chained and before is not None else engine.add(x, x)
        square = engine.square(begun)
        before = engine.add(engine.square(square), engine.rotate(square, 3))
    return tuple(engine.code)


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_equal_lanes_stand_side_by_side(lanes: int) -> None:
    code = recorded(7)
    ordered = in_step(code, lanes)
    groups = [lanes] * (7 // lanes) + [7 % lanes] * (7 % lanes > 0)
    kinds = ("add", "square", "square", "rotate", "add")
    together = [kind for size in groups for kind in kinds for _ in range(size)]
    assert [one.primitive for one in ordered] == together
    assert played(ordered, 7) == played(code, 7)


def test_lanes_that_begin_with_the_one_before_stay_one_after_another() -> None:
    code = recorded(4, chained=True)
    assert in_step(code, 4) == code


def test_a_sum_over_lanes_may_go_on_in_step() -> None:
    engine = Recorder(EngineParameters(SLOTS, LEVELS))
    operands = [engine.register(LEVELS) for _ in range(4)]
    total: Register | None = None
    for x in operands:
        turned = engine.rotate(engine.square(x), 1)
        total = engine.add(turned, turned if total is None else total)
    ordered = in_step(engine.code, 4)
    assert runs(ordered) == [("square", 4), ("rotate", 4), ("add", 4)]
    assert played(ordered, 4) == played(tuple(engine.code), 4)


@given(st.lists(st.tuples(st.sampled_from(["add", "sub", "negate", "rotate"]),
                          st.integers(0, 99), st.integers(0, 99)), max_size=40),
       st.integers(2, 5))  # fmt: skip
def test_any_code_computes_the_same(calls: list[tuple[str, int, int]], lanes: int) -> None:
    engine = Recorder(EngineParameters(SLOTS, LEVELS))
    known = [engine.register(LEVELS) for _ in range(3)]
    for name, first, second in calls:
        x, y = known[first % len(known)], known[second % len(known)]
        if name in ("add", "sub"):
            known.append(getattr(engine, name)(x, y))
        else:
            known.append(engine.negate(x) if name == "negate" else engine.rotate(x, 1 + first % 7))
    code = tuple(engine.code)
    ordered = in_step(code, lanes)
    assert sorted(ordered, key=lambda one: one.results) == list(code)
    assert played(ordered, 3) == played(code, 3)


def test_the_modular_reductions_of_a_bootstrap_of_two_go_in_step() -> None:
    alone, together = (circuit("fourteen_levels", 1 << 10, 1 << 10, lanes).two for lanes in (1, 2))
    squares = [size for kind, size in runs(together.code) if kind == "square"]
    assert squares and set(squares) == {2}
    assert {size for kind, size in runs(alone.code) if kind == "square"} == {1}

    def calls(code: tuple[Instruction, ...]) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        return sorted((one.primitive, one.operands, one.results) for one in code)

    assert calls(together.code) == calls(alone.code)
    assert together.results == alone.results
