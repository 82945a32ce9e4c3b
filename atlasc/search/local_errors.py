"""Errors of choices at the output of their own op, on activations of the cleartext model.

Thousands of choices are compared here in the time of a few evaluations of the whole model, on rows
of the ops' arguments. These errors put the choices of a group in order; their effect on the model's
output is measured later.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from atlasc.calibration.measure import blas_threads, row_sums
from atlasc.calibration.ranges import Range
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Op, Value
from atlasc.ir.opdef import Site
from atlasc.ir.ops.masks import keep_mask
from atlasc.polynomials.description import Approximation
from atlasc.search.error_model import Choice, Group
from atlasc.search.search_problem import SearchProblem
from atlasc.simulation.blockwise import Blockwise
from atlasc.simulation.poly_values import EXPLODED

SAMPLE = 1 << 16
"""Number of elements of an op's argument that are kept."""
QUERIES, EXTREMES = 20, 2
"""Number of rows of scores kept for each input and head, and number of these with an extreme value
of each quantity."""
STRETCHES = 4
"""Number of steps in which scores are stretched towards the ends of their ranges."""
GREATEST_PROBABILITY = 4.0
"""A probability above this, for scores within their calibrated ranges, starts an explosion."""


@dataclass(frozen=True)
class Captured:
    """Arguments and the result of one op.

    Attributes:
        op, site: the op.
        x: rows of the argument [R, features]; for a softmax, scores [B, heads, queries, keys].
        y: the exact result on these rows, multiplied with `values` if there are any.
        weights: number of rows of the calibration inputs that each row stands for, broadcast to
            `y`.
        keep: softmax only: the keys that each query may see, shaped like `x`.
        values: softmax only: the factor of its probabilities, [B, heads, keys, width].
        stretched: softmax only: scores stretched to the ends of the calibrated ranges, shaped like
            `x`.
    """

    op: Op
    site: Site
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    keep: np.ndarray | None = None
    values: np.ndarray | None = None
    stretched: np.ndarray | None = None

    def error(self, y: np.ndarray) -> float:
        """Weighted mean absolute error of a result; infinite if it is not finite."""
        total = np.broadcast_to(self.weights, y.shape[:-1] + (1,)).sum(dtype=np.float64)
        error = float(np.sum(np.abs(y - self.y) * self.weights, dtype=np.float64))
        error /= float(total) * y.shape[-1]
        return error if np.isfinite(error) else float("inf")


def capture(
    problem: SearchProblem, seed: int, progress: Callable[[int, int], None] | None = None
) -> dict[str, Captured]:
    """Evaluate the cleartext model and keep rows of the arguments of its nonlinear ops.

    Returns result name of the op -> kept rows.

    Args:
        problem: the search problem.
        seed: seed for the choice of rows.
        progress: called with (ops done, all ops).
    """
    generator = np.random.default_rng([seed, 2])
    found: dict[str, Captured] = {}
    pending: dict[Value, Captured] = {}
    done = itertools.count()

    def look(op: Op, site: Site, operands: list[np.ndarray]) -> None:
        if progress is not None:
            progress(next(done), len(problem.module.ops))
        if op.name == "nn.matmul" and op.operands[0] in pending:
            waiting = pending.pop(op.operands[0])
            values = operands[1]
            found[waiting.op.value.name] = replace(waiting, values=values, y=waiting.y @ values)
        if not op.definition.nonlinear or op.value.tensor.side != "server":
            return
        inputs = np.asarray(problem.shares or np.ones(len(operands[0])), problem.dtype)
        if op.name == "nn.softmax":
            known = problem.calibration.of(op)
            captured = _softmax_rows(op, site, operands, inputs, generator, known)
            pending[op.value] = captured
        else:
            captured = _rows(op, site, operands[0], inputs, generator)
        found[op.value.name] = captured

    with np.errstate(all="ignore"), blas_threads(1):
        Interpreter(problem.module, problem.dtype, override=look).run(problem.arrays)
    return found


def _rows(
    op: Op, site: Site, x: np.ndarray, inputs: np.ndarray, generator: np.random.Generator
) -> Captured:
    rows = x.reshape(-1, x.shape[-1])
    weights = np.repeat(inputs, len(rows) // len(inputs))
    count = max(1, SAMPLE // rows.shape[1])
    if len(rows) > count:
        # Rows of the greatest and the least variance are always kept: they bound the ranges.
        spread = rows.var(axis=-1)
        chosen = generator.choice(len(rows), count, replace=False)
        chosen = np.unique([*chosen, spread.argmax(), spread.argmin()])
        rows, weights = rows[chosen], weights[chosen]
    assert op.definition.evaluate is not None
    return Captured(op, site, rows, op.definition.evaluate(site, rows), weights[:, None])


def _softmax_rows(
    op: Op,
    site: Site,
    operands: list[np.ndarray],
    inputs: np.ndarray,
    generator: np.random.Generator,
    known: Range,
) -> Captured:
    scores = operands[0]
    mask = keep_mask(site, *operands)
    keep = np.broadcast_to(np.True_ if mask is None else mask, scores.shape)
    rows, weights = _extreme_rows(np.where(keep, scores, -np.inf), generator)
    x, kept = (np.take_along_axis(array, rows[..., None], axis=-2) for array in (scores, keep))
    visible = np.where(kept, x, -np.inf)
    powers = np.exp(visible - visible.max(axis=-1, keepdims=True))
    exact = powers / powers.sum(axis=-1, keepdims=True)
    weights = inputs[:, None, None, None] * weights.astype(inputs.dtype)[:, None]
    return Captured(op, site, x, exact, weights, kept, stretched=_stretched(x, kept, known))


def _extreme_rows(
    seen: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Queries of each input and head: those with an extreme greatest score, least score or sum of
    exp(score / 4), and others at random.

    Args:
        seen: scores [B, heads, queries, keys], -inf where a mask hides a key.
        generator: source of the random choice.

    Returns:
        queries [B, heads, Q], and the number of queries that each of the Q stands for, [Q].
    """
    count = seen.shape[-2]
    if count <= QUERIES:
        return np.broadcast_to(np.arange(count), seen.shape[:-1]), np.ones(count)
    top = seen.max(axis=-1)
    least = np.where(np.isfinite(seen), seen, np.inf).min(axis=-1)
    warm = top / 4 + np.log(np.exp((seen - top[..., None]) / 4).sum(axis=-1))
    quantities = (top, -top, -least, warm, -warm)
    extremes = [np.argsort(values, axis=-1)[..., -EXTREMES:] for values in quantities]
    extreme = EXTREMES * len(extremes)
    chance = np.argsort(generator.random(top.shape), axis=-1)[..., : QUERIES - extreme]
    weights = np.ones(QUERIES)
    weights[extreme:] = (count - extreme) / (QUERIES - extreme)
    return np.concatenate([*extremes, chance], axis=-1), weights


def _stretched(x: np.ndarray, keep: np.ndarray, known: Range) -> np.ndarray:
    """Rows of scores, stretched as far as the calibrated ranges allow: new inputs may lie there.

    Each row is multiplied by the largest factor for which its scores and sums stay in their ranges;
    the factor is at most the ratio of the range to the values seen in calibration.
    """
    assert known.log_sums is not None and known.shares is not None
    stretch = (known.high - known.low) / max(known.seen_high - known.seen_low, 1e-6)
    bounds, shares = np.array(known.log_sums), np.array(known.shares)
    found = x
    for factor in np.linspace(1, stretch, STRETCHES + 1)[1:]:
        further = x * x.dtype.type(factor)
        rows = row_sums(further, keep)
        sums = rows.logs[..., 1 : len(bounds) + 1] + shares * rows.logs[..., :1]
        inside = ((bounds[:, 0] <= sums) & (sums <= bounds[:, 1])).all(axis=-1)
        inside &= (known.low <= rows.least) & (rows.top <= known.high)
        found = np.where(inside[..., None], further, found)
    return found


class LocalErrors:
    """Errors of choices at their own ops, on the rows that `capture` keeps.

    Args:
        approximations: gives the approximations of a group's ops under a choice, by result name.
        seed, progress: see `capture`.
    """

    def __init__(
        self,
        problem: SearchProblem,
        approximations: Callable[[Group, Choice], Mapping[str, Approximation]],
        seed: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._captured = capture(problem, seed, progress)
        self._approximations = approximations
        self._blockwise = Blockwise(problem.dtype, 1, EXPLODED)
        self._seen: dict[tuple[Group, Choice], float] = {}
        self._known: dict[tuple[Group, Choice], float] = {}

    @property
    def compared(self) -> int:
        """Number of choices compared so far."""
        return len(self._seen)

    def error(self, group: Group, choice: Choice) -> float:
        """Mean absolute error of the group's ops; infinite if a value explodes. A softmax must also
        stay finite on the scores that are stretched to the ends of its ranges.
        """
        key = group, choice
        if key not in self._known:
            error = self.seen_error(group, choice)
            chosen = self._approximations(group, choice) if np.isfinite(error) else {}
            stays = all(self._stays(name, one) for name, one in chosen.items())
            self._known[key] = error if stays else float("inf")
        return self._known[key]

    def seen_error(self, group: Group, choice: Choice) -> float:
        """The same on the captured rows alone, which takes half as long for a softmax."""
        key = group, choice
        if key not in self._seen:
            chosen = self._approximations(group, choice)
            self._seen[key] = sum(self._of_op(name, a) for name, a in chosen.items())
        return self._seen[key]

    def _of_op(self, name: str, approximation: Approximation) -> float:
        captured = self._captured[name]
        y = self._result(captured, captured.x, approximation)
        if y is None:
            return float("inf")
        return captured.error(y if captured.values is None else y @ captured.values)

    def _stays(self, name: str, approximation: Approximation) -> bool:
        captured = self._captured[name]
        if captured.stretched is None:
            return True
        y = self._result(captured, captured.stretched, approximation)
        return y is not None and bool(np.abs(y).max() <= GREATEST_PROBABILITY)

    def _result(
        self, captured: Captured, x: np.ndarray, approximation: Approximation
    ) -> np.ndarray | None:
        return self._blockwise.on_rows(captured.op, captured.site, x, approximation, captured.keep)


@dataclass(frozen=True, order=True)
class Candidate:
    """A choice of a group.

    Attributes:
        cost: depth or levels.
        local: error at its own op.
        choice: the integers.
        degrees: sum of the degrees, if they count beside the levels; otherwise 0.
    """

    cost: int
    local: float
    choice: Choice
    degrees: int = 0

    def covers(self, other: Candidate) -> bool:
        """Whether this candidate is at least as good as ``other`` in every respect."""
        return (
            self.cost <= other.cost and self.local <= other.local and self.degrees <= other.degrees
        )


def candidates(
    starts: Sequence[Choice],
    lower: Choice,
    upper: Choice,
    canonical: Callable[[Choice], Choice],
    look: Callable[[Choice], Candidate],
    whole: Callable[[Choice], Candidate] | None = None,
) -> list[Candidate]:
    """Locally non-dominated choices, from cheap to accurate, by Pareto local search.

    Starting from ``starts``, all neighbours (one integer changed by one) of every choice on the
    front so far are evaluated, until the front has no unvisited neighbours.

    Args:
        starts: first choices.
        lower, upper: bounds of the integers.
        canonical: gives the canonical form of a choice; equal forms are evaluated once.
        look: makes a candidate from a choice; its local error may be too small.
        whole: makes it with its whole local error, which takes longer; only for candidates that
            no other covers. None if that of `look` is whole.
    """
    known: dict[Choice, Candidate] = {}
    expanded: dict[Choice, Candidate] = {}
    sure = set[Choice]()
    queue: list[Candidate] = []

    def covered(one: Candidate) -> bool:
        """What covers a candidate comes before it in the queue."""
        return any(other.covers(one) and not one.covers(other) for other in expanded.values())

    def visit(choice: Choice) -> None:
        if choice not in expanded:
            if choice not in known:
                known[choice] = look(choice)
            heapq.heappush(queue, known[choice])

    for start in starts:
        visit(canonical(start))
    while queue:
        current = heapq.heappop(queue)
        if current.choice in expanded or current != known[current.choice] or covered(current):
            continue
        if whole is not None and current.choice not in sure:
            sure.add(current.choice)
            known[current.choice] = whole(current.choice)
            heapq.heappush(queue, known[current.choice])
            continue
        expanded[current.choice] = current
        for position, value in enumerate(current.choice):
            for moved in (value - 1, value + 1):
                if lower[position] <= moved <= upper[position]:
                    choice = current.choice
                    visit(canonical((*choice[:position], moved, *choice[position + 1 :])))
    finite = [c for c in expanded.values() if np.isfinite(c.local)]
    front: list[Candidate] = []
    for candidate in sorted(finite, key=lambda c: (c.cost, c.local, c.degrees, c.choice)):
        if not any(other.covers(candidate) for other in front):
            front.append(candidate)
    return front
