"""Sums and products of row-packed matrices, the textbook way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from atlasc.passes.lowering.packing.forms import Form
from atlasc.program.engine import Engine
from benchmarks.peers.rows import Rows

if TYPE_CHECKING:
    from benchmarks.peers.naive import Naive

Ct = TypeVar("Ct")
Blocks: TypeAlias = list[list[Any]]
"""Ciphertexts ``[block of columns][block of rows]``."""


def sum_to_first(engine: Engine[Ct], x: Ct, width: int) -> Ct:
    """Slot 0 of every ``width`` slots holds their sum, the others hold anything."""
    step = 1
    while step < width:
        x = engine.add(x, engine.rotate(x, step))
        step *= 2
    return x


def copy_first(engine: Engine[Ct], x: Ct, width: int) -> Ct:
    """Slot 0 of every ``width`` slots in all of them; the others must be 0."""
    step = 1
    while step < width:
        x = engine.add(x, engine.rotate(x, -step))
        step *= 2
    return x


def row_sum(program: Naive[Ct], blocks: list[Ct], form: Form, width: int, c: int) -> Ct:
    """Sum over all blocks and over ``width`` slots, in all of these slots; one level."""
    engine, rows = program.engine, program.rows
    total = blocks[0]
    for block in blocks[1:]:
        total = engine.add(total, block)
    total = sum_to_first(engine, total, width)
    first = program.vector(
        lambda: rows.occupied(form, rows.row, 0, c) & (rows.feature % width == 0)
    )
    return copy_first(engine, engine.mul_plain(total, first), width)


def linear(program: Naive[Ct], weight: np.ndarray, bias: np.ndarray | None, x: Blocks) -> Blocks:
    """x Wᵀ + bias by diagonals; one level."""
    engine, rows = program.engine, program.rows
    outputs, inputs = weight.shape
    babies = 1 << round(math.log2(min(outputs, rows.row) + min(inputs, rows.row)) / 2)
    result: Blocks = [[] for _ in range(rows.blocks(outputs))]
    for c in range(rows.ciphertexts):
        turned = [_steps(engine, block[c], babies) for block in x]
        for target, columns in enumerate(result):
            part = weight[target * rows.row : (target + 1) * rows.row]
            parts = [part[:, at * rows.row : (at + 1) * rows.row] for at in range(len(x))]
            total = _by_diagonals(program, parts, turned, c)
            if bias is not None:
                shift = partial(rows.spread, bias, target, c)
                total = engine.add_plain(total, program.vector(shift))
            columns.append(total)
    return result


def _by_diagonals(
    program: Naive[Ct], parts: list[np.ndarray], turned: list[list[Ct]], c: int
) -> Ct:
    """Σ over the blocks of columns: y[f] = Σ_k W[f, f + k] x[f + k], with k = giant · B + baby.

    The diagonals k run from −(outputs − 1) to inputs − 1: a row does not wrap around.

    Args:
        parts: W of every block, [outputs, inputs].
        turned: x of every block rotated by 0 … B − 1.
        c: which rows.
    """
    engine, rows, babies = program.engine, program.rows, len(turned[0])
    outputs, inputs = len(parts[0]), max(part.shape[1] for part in parts)
    last = (1 - outputs) // babies
    total: Ct | None = None
    for giant in range((inputs - 1) // babies, last - 1, -1):
        if total is not None:
            total = engine.rotate(total, babies)
        for part, steps in zip(parts, turned, strict=True):
            for baby, step in enumerate(steps):
                k = giant * babies + baby
                if -outputs < k < part.shape[1]:
                    vector = program.vector(partial(_diagonal, rows, part, k, giant * babies, c))
                    term = engine.mul_plain(step, vector)
                    total = term if total is None else engine.add(total, term)
    assert total is not None
    return engine.rotate(total, last * babies)


def _steps(engine: Engine[Ct], x: Ct, count: int) -> list[Ct]:
    """x rotated by 0, 1, … count − 1."""
    steps = [x]
    while len(steps) < count:
        steps.append(engine.rotate(steps[-1], 1))
    return steps


def _diagonal(rows: Rows, weight: np.ndarray, k: int, ahead: int, c: int) -> np.ndarray:
    """W[f, f + k] in the slots of feature f, 0 outside the matrix, turned back by ``ahead``."""
    outputs, inputs = weight.shape
    f = np.arange(max(0, -k), min(outputs, inputs - k))
    diagonal = np.zeros(rows.row)
    diagonal[f] = weight[f, f + k]
    return np.roll(rows.spread(diagonal, 0, c), ahead)


def _first_slots(rows: Rows, c: int) -> np.ndarray:
    """Boolean: the first slot of every head."""
    return rows.occupied(Form.SCORES, 0, 0, c) & (rows.feature % rows.width == 0)


def _turned_rows(program: Naive[Ct], turned: list[Ct], r: int) -> Iterator[list[Ct]]:
    """The rows of a matrix turned by r, r + R, r + 2R, … from its ciphertexts turned by r.

    Rows that cross from one ciphertext to the next are masked, which costs a level.
    """
    engine, rows = program.engine, program.rows
    count = rows.ciphertexts
    row = np.arange(rows.slots) // rows.row % rows.rows
    for jump in range(count):
        if count == 1:
            yield turned
            continue
        result = []
        for c in range(count):
            near, far = turned[(c + jump) % count], turned[(c + jump + 1) % count]
            if r:
                near = engine.mul_plain(near, program.vector(lambda: row < rows.rows - r))
                far = engine.mul_plain(far, program.vector(lambda: row >= rows.rows - r))
                near = engine.add(near, far)
            result.append(near)
        yield result


def scores(program: Naive[Ct], queries: Blocks, keys: Blocks) -> Blocks:
    """q kᵀ by diagonals: for each, a product, a sum over the width of a head, a mask to its first
    slot, and a rotation to its place.
    """
    engine, rows = program.engine, program.rows
    (query,), (key,) = queries, keys
    result: list[list[Any]] = [[None] * rows.ciphertexts for _ in range(rows.score_blocks)]
    places: dict[tuple[int, int], Any] = {}
    turned = key
    for r in reversed(range(rows.rows)):
        turned = [engine.rotate(ct, -rows.row) for ct in turned] if r else key
        for jump, others in enumerate(_turned_rows(program, turned, r)):
            block, place = divmod(r + jump * rows.rows, rows.width)
            for c in range(rows.ciphertexts):
                total = engine.mul(query[c], others[c])
                total = sum_to_first(engine, total, rows.width)
                first = program.vector(partial(_first_slots, rows, c))
                total = engine.mul_plain(total, first)
                at = (jump, c)
                if at in places:
                    total = engine.add(engine.rotate(places.pop(at), -1), total)
                if r and place:  # the neighbouring diagonal follows
                    places[at] = total
                    continue
                total = engine.rotate(total, -place)
                so_far = result[block][c]
                result[block][c] = total if so_far is None else engine.add(so_far, total)
    return result


def weighted_sum(program: Naive[Ct], weights: Blocks, values: Blocks) -> Blocks:
    """p v: each diagonal of p is masked, copied over the width of a head and multiplied with the
    turned rows of v.
    """
    engine, rows = program.engine, program.rows
    (turned,) = values
    result: list[Any] = [None] * rows.ciphertexts
    current: dict[tuple[int, int], Any] = {}
    for r in range(rows.rows):
        if r:
            turned = [engine.rotate(ct, rows.row) for ct in turned]
        for jump, others in enumerate(_turned_rows(program, turned, r)):
            block, place = divmod(r + jump * rows.rows, rows.width)
            for c in range(rows.ciphertexts):
                at = (jump, c)
                if r and place:
                    current[at] = engine.rotate(current[at], 1)
                else:
                    current[at] = engine.rotate(weights[block][c], place)
                first = program.vector(partial(_first_slots, rows, c))
                one = engine.mul_plain(current[at], first)
                term = engine.mul(copy_first(engine, one, rows.width), others[c])
                result[c] = term if result[c] is None else engine.add(result[c], term)
    return [result]
