"""Ops as functions: what is recorded, that equal ops share it, and what plaintexts are built of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.costs import program_costs
from atlasc.program.counting_engine import counts_of
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters
from atlasc.program.plaintexts import (
    NOWHERE,
    Argument,
    Literal,
    Lookup,
    Slots,
    Table,
    Term,
    built,
    last_kept,
    log_hidden,
    log_hidden_near,
    positions,
    shares,
)
from tests.atlasc.emit.small_programs import NAMES, SmallParameters, small_program

LINEAR = """\
function linear_transform_1(%0 at level 14; weight)
  %1 = rotate %0 [4]
  %2 = times_i %1
  %3 = add %0 %2
  %4 = rotate %3 [2]
  %5 = dot_plain %3 %4 {0.5 · weight[row.0 + column.0] + -0.5j · weight[row.0 + column.0<<4]} \
{0.5 · weight[row.0 + column.0<<2] + -0.5j · weight[row.0 + column.0<<6]}
  %6 = conjugate %5
  %7 = add %5 %6
  return %7
"""


def functions(program: Module, parameters: SmallParameters) -> Functions:
    return Functions(program, EngineParameters.of(parameters))


def test_text() -> None:
    """Two layers with weights of their own: equal ops at other levels are other functions."""
    case = small_program("residual")
    text = functions(case.program, case.parameters).text()
    assert LINEAR in text
    assert "%1 = linear_transform_1(%0, weight = layer.0.weight)  # encoder.layer.0.dense" in text
    assert "%5 = linear_transform_2(%4, weight = layer.1.weight)  # encoder.layer.1.dense" in text


def test_equal_ops_share_a_function() -> None:
    case = small_program("encoder")
    found = functions(case.program, case.parameters)
    calls, named = dict(found.calls()), found.named()
    # Blocks are at other levels, so that an op of one is seldom the same as that of another.
    names = {function.name for function in named.values()}
    assert len(names) == len(set(named.values())) == len(set(calls.values())) < len(calls)
    for op, function in calls.items():
        assert named[op].name.rpartition("_")[0] == op.name.removeprefix("ckks.")
        assert named[op].code is function.code
        assert found.of(op, function.levels) is function
    assert dict(functions(case.program, case.parameters).calls()) == calls


@pytest.mark.parametrize("name", NAMES)
def test_registers_are_written_once_and_released_after_their_last_use(name: str) -> None:
    case = small_program(name)
    for _, function in functions(case.program, case.parameters).calls():
        alive = set(range(function.operands))
        for instruction, released in zip(function.code, function.released, strict=True):
            assert set(instruction.operands) <= alive
            assert not set(instruction.results) & alive
            alive |= set(instruction.results)
            assert set(released) <= alive
            alive -= set(released)
        assert set(function.results) <= alive
        assert alive <= {*function.results, *range(function.operands)}


@pytest.mark.parametrize("name", NAMES)
def test_costs_need_no_arrays(name: str) -> None:
    """Functions for costs alone make the calls of whole ones."""
    case = small_program(name)
    counts = program_costs(case.program).per_op
    for op, function in functions(case.program, case.parameters).calls():
        assert counts_of(function) == counts[op], op


def test_a_level_too_few_names_the_op() -> None:
    case = small_program("residual")
    op = next(op for op in case.program.ops if op.name == "ckks.square")
    with pytest.raises(AtlasError, match=r"ckks\.square %2: square is impossible") as refused:
        functions(case.program, case.parameters).of(op, [[0]])
    assert refused.value.where == "encoder.layer.0.activation"


@st.composite
def slots(draw: st.DrawFn) -> tuple[Slots, int, np.ndarray]:
    """A descriptor of random tables, the slots, and the array that it takes elements of."""
    size = 1 << draw(st.integers(0, 5))
    array = np.array(draw(st.lists(st.floats(-2, 2), min_size=8, max_size=8)))

    def table() -> Table:
        length = 1 << draw(st.integers(0, size.bit_length() - 1))
        numbers = draw(st.lists(st.integers(NOWHERE, 3), min_size=length, max_size=length))
        if draw(st.booleans()):
            return Table("mask", lambda: np.array(numbers) >= 0)
        return Table("table", lambda: np.array(numbers))

    def lookup() -> Lookup:
        source = draw(st.sampled_from([None, Argument("weight"), Literal(array)]))
        places = [
            (table(), draw(st.integers(-2 * size, 2 * size)))
            for _ in range(draw(st.integers(1, 2)))
        ]
        return Lookup(source, tuple(places))

    factors = st.sampled_from([1.0, -0.5, 0.5j])
    terms = [
        Term(draw(factors), tuple(lookup() for _ in range(draw(st.integers(1, 3)))))
        for _ in range(draw(st.integers(1, 3)))
    ]
    return Slots(tuple(terms)), size, array


@given(slots(), st.integers(-40, 40))
def test_slots_are_sums_of_products_of_elements(
    case: tuple[Slots, int, np.ndarray], amount: int
) -> None:
    descriptor, size, array = case

    def element(lookup: Lookup, slot: int) -> float:
        found = [
            table.numbers[(slot + rotation) % size * len(table.numbers) // size]
            for table, rotation in lookup.places
        ]
        if NOWHERE in found:
            return 0.0
        return 1.0 if lookup.array is None else float(array[sum(found)])

    expected = [
        sum(factor * math.prod(element(one, slot) for one in lookups) for factor, lookups in terms)
        for slot in range(size)
        for terms in (descriptor.terms,)
    ]
    found = built(descriptor, size, lambda argument: array)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    rolled = built(descriptor.rolled(amount), size, lambda argument: array)
    np.testing.assert_array_equal(rolled, np.roll(found, amount))
    both = built(descriptor * descriptor, size, lambda argument: array)
    np.testing.assert_allclose(both, found * found, rtol=0, atol=1e-9)


def test_shares_of_a_mask() -> None:
    """An input without tokens has none."""
    mask = np.array([[1, 0, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_allclose(shares(mask), [[1 / 3, 0, 1 / 3, 1 / 3], [0, 0, 0, 0]])


def test_the_last_token_of_a_mask() -> None:
    """A text without tokens has none."""
    mask = np.array([[1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]])
    expected = [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(last_kept(mask), expected)


def test_positions_in_a_mask() -> None:
    mask = np.array([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0]])
    np.testing.assert_allclose(positions(mask), [[0, 0, 1, 1, 2], [0] * 5])


def test_visible_keys_of_a_mask() -> None:
    mask = np.array([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    expected = [[math.log(4), math.log(4), math.log(2), math.log(4 / 3)], [math.log(4)] * 4]
    np.testing.assert_allclose(log_hidden(mask), expected)


@given(st.integers(0, 99), st.integers(1, 6), st.booleans())
def test_visible_keys_within_a_window(seed: int, window: int, causal: bool) -> None:
    mask = np.random.default_rng(seed).integers(0, 2, size=(2, 5))
    for found, kept in zip(log_hidden_near(mask, window, causal), mask, strict=True):
        for query in range(5):
            keys = [key for key in range(5) if kept[key] and not (causal and key > query)]
            if kept[query]:
                keys = [key for key in keys if abs(key - query) < window]
            assert found[query] == pytest.approx(math.log(5 / max(len(keys), 1)))
