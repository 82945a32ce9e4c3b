"""Routes: three transforms move each element to its place, in any map of slots."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.layout import Layout
from atlasc.ir.ops.rows import Cache, row_layout
from atlasc.program.kernels.cache import _moves
from atlasc.program.kernels.routes import Moves, _colours, routes
from atlasc.program.plaintexts import built


def moved(moves: Moves, x: np.ndarray) -> np.ndarray:
    """One transform in the clear: slots ``[operands, slots]`` to ``[results, slots]``."""
    found = np.zeros((1 + int(moves.result.max()), moves.slots))
    for result, giant, operand, baby in moves.places.tolist():
        value = moves.diagonal(result, giant, operand, baby)
        numbers = built(value, moves.slots, lambda argument: np.zeros(1))
        found[result] += numbers * np.roll(x[operand], -(giant + baby))
    return found


def drawn(slots: int, operands: int, results: int, share: float, seed: int) -> Moves:
    """A random map: some slots of the results take slots of the operands, some of these twice."""
    random = np.random.default_rng(seed)
    here = random.random((results, slots)) < share
    here[:, 0] = True
    places = np.flatnonzero(here)
    taken = random.integers(operands * slots, size=len(places))
    operand, source = np.divmod(taken, slots)
    result, target = np.divmod(places, slots)
    return Moves(slots, operand, source, result, target, 1)


@pytest.mark.parametrize("slots", [2, 16, 64, 512])
@pytest.mark.parametrize(
    ("operands", "results", "share"), [(1, 1, 1.0), (1, 3, 0.5), (4, 1, 0.9), (3, 2, 0.1)]
)
def test_any_map_is_three_transforms(slots: int, operands: int, results: int, share: float) -> None:
    moves = drawn(slots, operands, results, share, seed=slots + operands)
    x = np.random.default_rng(0).normal(size=(operands, slots))
    wanted = np.zeros((1 + int(moves.result.max()), slots))
    wanted[moves.result, moves.target] = x[moves.operand, moves.source]
    found = x
    for one in routes(moves):
        found = moved(one, found)
    np.testing.assert_array_equal(found, wanted)


def test_the_first_and_the_last_transform_move_by_rows() -> None:
    """Of a permutation of one ciphertext they have a diagonal a row, the second one fewer than two
    a column.
    """
    slots = 512
    order = np.random.default_rng(0).permutation(slots)
    zero = np.zeros(slots, np.int64)
    first, second, third = routes(Moves(slots, zero, order, zero, np.arange(slots), 1))
    columns = first.unit
    assert columns == third.unit == 64
    assert not (first.amounts % columns).any()
    assert len(first.places) <= slots // columns >= len(third.places)
    assert len(second.places) < 2 * columns


@pytest.mark.parametrize("bits", [0, 1, 5])
def test_edges_of_one_vertex_have_different_colours(bits: int) -> None:
    random, columns = np.random.default_rng(bits), 8
    every = np.repeat(np.arange(columns), 1 << bits)
    left, right = every, random.permutation(every)
    some = random.random(len(every)) < 0.8
    left, right = left[some], right[some]
    wanted = random.integers(1 << bits, size=len(left))
    colour = _colours(left, right, wanted, columns, bits)
    assert colour.min() >= 0
    assert colour.max() < 1 << bits
    for ends in (left, right):
        assert len(np.unique(ends * (1 << bits) + colour)) == len(left)


@pytest.mark.parametrize("keys", [True, False])
def test_a_ciphertext_of_padding_is_made_too(keys: bool) -> None:
    """Of heads of three features, where the last part has one token."""
    window = Layout.parse("[d:2 g:1 b:0 t:3 | g.1:3 | b=1 t=5 g=9 d=3]")
    cache = Cache.choose(keys, row_layout(64, 1, 9, 3, 0), 5)
    rows = np.random.default_rng(0).normal(size=(1, 9, 5, 3))
    wanted = cache.pack(rows)
    moves, places = _moves(window, cache.layout)
    found = window.pack(rows.transpose(0, 2, 1, 3))
    for one in moves:
        found = moved(one, found)
    assert (~wanted.any(axis=1)).any(), "no ciphertext is padding alone"
    np.testing.assert_array_equal(found * (places >= 0), wanted)
