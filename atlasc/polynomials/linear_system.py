"""Sparse linear equations that are added one at a time, with a preferred value for each unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)
TOLERANCE = 1e-9


@dataclass
class LinearSystem(Generic[K]):
    """Equations Σ coefficient·unknown = constant in reduced row echelon form.

    Attributes:
        rows: for every pivot unknown, its expression in free unknowns: ({free: coefficient},
            constant), meaning pivot = Σ coefficient·free + constant.
    """

    rows: dict[K, tuple[dict[K, float], float]] = field(default_factory=dict)
    # Dictionaries keep their order. Sets of values would be ordered by addresses, and the last bits
    # of a solution would change from run to run.
    _mentions: defaultdict[K, dict[K, None]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, row: Mapping[K, float], constant: float) -> bool:
        """Add an equation; False, without a change, if it contradicts earlier equations."""
        free: defaultdict[K, float] = defaultdict(float)
        for unknown, coefficient in row.items():
            expression, offset = self.rows.get(unknown, ({unknown: 1.0}, 0.0))
            constant -= coefficient * offset
            for name, value in expression.items():
                free[name] += coefficient * value
        left = {name: value for name, value in free.items() if abs(value) > TOLERANCE}
        if not left:
            return abs(constant) < TOLERANCE
        # The unknown with the fewest mentions keeps the substitution below short.
        pivot = min(left, key=lambda unknown: len(self._mentions.get(unknown, ())))
        weight = left.pop(pivot)
        solved = {name: -value / weight for name, value in left.items()}
        constant /= weight
        for other in self._mentions.pop(pivot, ()):  # they no longer mention the pivot
            terms, offset = self.rows[other]
            share = terms.pop(pivot)
            for name, value in solved.items():
                terms[name] = terms.get(name, 0.0) + share * value
                if abs(terms[name]) <= TOLERANCE:
                    del terms[name]
                    self._mentions[name].pop(other, None)
                else:
                    self._mentions[name][other] = None
            self.rows[other] = (terms, offset + share * constant)
        self.rows[pivot] = (solved, constant)
        for name in solved:
            self._mentions[name][pivot] = None
        return True

    def solve(self, wishes: Mapping[K, float]) -> dict[K, float]:
        """The solution nearest to the wishes in the least-squares sense.

        Unknowns that share no equation are solved separately; the largest group determines the
        cost.
        """
        free = dict.fromkeys(name for name in wishes if name not in self.rows)
        free |= dict.fromkeys(name for terms, _ in self.rows.values() for name in terms)
        values: dict[K, float] = {}
        for group in self._groups(free):
            index = {name: position for position, name in enumerate(group)}
            pivots = [p for name in group for p in self._mentions.get(name, ())]
            matrix, target = [], []
            for name in [*group, *dict.fromkeys(pivots)]:
                if name in wishes:
                    terms, offset = self.rows.get(name, ({name: 1.0}, 0.0))
                    row = np.zeros(len(group))
                    for other, value in terms.items():
                        row[index[other]] = value
                    matrix.append(row)
                    target.append(wishes[name] - offset)
            rows = np.array(matrix).reshape(-1, len(group))
            solution = np.linalg.lstsq(rows, np.array(target), rcond=None)[0]
            values.update(zip(group, solution.tolist(), strict=True))
        for pivot, (terms, offset) in self.rows.items():
            values[pivot] = offset + sum(value * values[name] for name, value in terms.items())
        return values

    def _groups(self, free: Iterable[K]) -> list[list[K]]:
        """Groups of free unknowns; unknowns that share a pivot are in one group."""
        groups, seen = [], set[K]()
        for start in free:
            if start in seen:
                continue
            group, pending = list[K](), [start]
            seen.add(start)
            while pending:
                group.append(pending.pop())
                for pivot in self._mentions.get(group[-1], ()):
                    fresh = [other for other in self.rows[pivot][0] if other not in seen]
                    seen.update(fresh)
                    pending += fresh
            groups.append(group)
        return groups
