"""Distance: how far the ranges of a setting's polynomials reach beyond the data.

A search takes the cheapest setting within an error, and its polynomials end where the calibrated
ranges do. Inputs of another kind go further. Often a setting that costs little more errs much less.
Then wider ranges of the same degrees, which cost nothing but accuracy, still keep the error. And
one polynomial of a higher degree costs little, where it is the one that such inputs leave first.

What is better is tried: on inputs of other kinds that are made from the held-back ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from atlasc.calibration.measure import Measurement, measure
from atlasc.calibration.room import with_room
from atlasc.calibration.violations import violations
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import NonlinearPlace
from atlasc.polynomials.description import Approximation
from atlasc.search.front import Front, Wanted
from atlasc.search.points import Point, Settings
from atlasc.search.search_problem import SearchProblem
from atlasc.search.validation import Validation, Validator

PRICE = 0.05
"""Share of the cost that distance may add."""
ROOMS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
"""How much further a range may reach at each end, as shares of its width, one after the other. With
1.2 and 1.6 too, polynomials became so coarse that more inputs of other kinds were unsafe again."""
RAISED = (0, 1, 2)
"""By how much the integers of an op may be raised at once: from a degree to the next, and the one
after it."""
SPENT = 0.5
"""Share of the allowed error that room may use up, for the same reason."""
MOST, AT_ONCE = 100, 20
"""Greatest number of evaluations: of all, and of one setting that gets more room or degrees."""
FAMILIES = ("norm", "softmax", "activation")
"""Families of ops in the order in which they get room: a norm is left first, and costs least."""
FURTHER, NOISY = (1.5, 2.0, 3.0), (0.5, 1.0)
"""Numbers of inputs of other kinds: how far from their mean they lie, as a multiple, and how large
their noise is, as a multiple of how they vary. Several, because most inputs leave a range under the
greatest ones, and hardly any under the least."""
STRESSED, WEIGHTS = (48, 192), 2e7
"""Least and greatest number of inputs of all these kinds, and between them as many as have this
product with the number of weights. The least is twice what a search compares settings on."""


def other_kinds(module: Module, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs of kinds that a calibration did not see, made from some that it did.

    Numbers lie further from their mean, or have noise. Tokens and numbers come from other inputs,
    each from the same place. Masks stay.

    Args:
        module: nn module that reads them.
        arrays: its inputs by name, ``[N, ...]``; others are left out.

    Returns:
        ``[K N, ...]`` by name, with K = 6 if an input has numbers, else 1; of the N at most as many
        as make `STRESSED` inputs.
    """
    random, inputs = np.random.default_rng(0), {op.attributes["name"]: op for op in module.inputs}
    all_of = {name: np.asarray(arrays[name]) for name in inputs if name in arrays}
    public = [name for name in all_of if inputs[name].attributes["side"] == "public"]
    numbers = [n for n, array in all_of.items() if array.dtype.kind == "f" and n not in public]
    kinds = [(further, 0.0) for further in FURTHER] + [(1.0, noise) for noise in NOISY]
    kinds = kinds if numbers else []
    weights = sum(array.size for array in module.arrays_used().values())
    count = int(np.clip(WEIGHTS / max(1, weights), *STRESSED)) // (1 + len(kinds))
    given = {name: array[:count] for name, array in all_of.items()}

    def mixed(name: str) -> np.ndarray:
        values = given[name]
        if name in public:
            return values
        masks = [given[one] for one in public if given[one].shape == values.shape[:2]]
        kept = masks[0] if masks else values != inputs[name].attributes.get("padding", np.nan)
        return _mixed(values, kept, random)

    def moved(name: str, further: float, noise: float) -> np.ndarray:
        values = given[name]
        if name not in numbers:
            return values
        mean, varying = values.mean(axis=0), values.std(axis=0)
        return mean + further * (values - mean) + noise * varying * random.normal(size=values.shape)

    return {
        name: np.concatenate([mixed(name), *(moved(name, *kind) for kind in kinds)])
        .astype(array.dtype)
        for name, array in given.items()
    }  # fmt: skip


def _mixed(values: np.ndarray, kept: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Values [N, places, ...] of which each comes from the same place of another input, if ``kept``
    [N, places, ...] says that both are real.
    """
    found = values.copy()
    for place in range(values.shape[1] if values.ndim > 1 else 0):
        rows = np.flatnonzero(kept[:, place].reshape(len(values), -1).any(axis=1))
        found[rows, place] = values[random.permutation(rows), place]
    return found


@dataclass(frozen=True)
class Distant:
    """A setting, and how much further its ranges reach.

    Attributes:
        point: the setting, with its costs and errors on these ranges.
        room: for the name of an op's result, the share of the width by which its ranges reach
            further; ops without room are left out.
        price: share by which it costs more than the setting that was picked.
    """

    point: Point
    room: dict[str, float] = field(default_factory=dict)
    price: float = 0.0


@dataclass(frozen=True)
class Stress:
    """Inputs of other kinds.

    Attributes:
        validator: of them.
        measured: what they reach at each nonlinear op, in the order of the ranges.
    """

    validator: Validator
    measured: Sequence[Measurement]


@dataclass
class Distances:
    """Gives a setting room, and some of its ops higher degrees, within the limits and `PRICE`.

    Args:
        problem: the search problem.
        front: its front.
        wanted: the limits, with a greatest error.
        report: called with the number of evaluations that are done.
    """

    problem: SearchProblem
    front: Front
    wanted: Wanted
    report: Callable[[int], object] = lambda done: None

    def __post_init__(self) -> None:
        self._objective, self._done, self._until = self.problem.objective(), 0, MOST
        self._counts: dict[tuple[Settings, tuple[tuple[str, float], ...]], int] = {}

    def best(
        self,
        picked: Point,
        held_back: Mapping[str, np.ndarray],
        exact: Mapping[str, np.ndarray] | None = None,
    ) -> Distant:
        """The setting under which the fewest inputs of other kinds are unsafe, and under which
        held-back inputs fare no worse.

        Args:
            picked: the setting that would be taken otherwise.
            held_back: inputs by name, ``[N, ...]``; N may be 0.
            exact: the model's answers to them by name; None computes them.
        """
        known = held_back if len(next(iter(held_back.values()))) else self.problem.arrays
        others = other_kinds(self.problem.module, known)
        start = Distant(self._start(picked))
        stress = self._stress(others, start)
        if self._unsafe(stress, start):
            found = [self._improved(one, picked, stress) for one in self._candidates(picked)]
        else:  # it has the least error, and room would only add to that
            found = [self._priced(start, picked), Distant(picked)]
        ordered = sorted(found, key=lambda one: (self._unsafe(stress, one), one.point.error))
        if known is not held_back:
            return ordered[0]
        validator = self._validator(held_back, exact)
        # The search may have tried the point on just these inputs.
        tried = picked.unsafe is not None and self.front.held_back == validator.inputs
        before = picked if tried else self._tried(validator, Distant(picked))
        agreement = 0.0 if before.agreement is None else before.agreement
        for one in ordered:
            after = self._tried(validator, one)
            if after.unsafe <= (before.unsafe or 0) and after.agreement >= agreement:
                own = replace(
                    one.point, held_back_error=after.error, unsafe=after.unsafe,
                    agreement=after.agreement,
                )  # fmt: skip
                return replace(one, point=own)
        return Distant(picked)

    def _validator(
        self, arrays: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray] | None = None
    ) -> Validator:
        problem, front = self.problem, self.front
        return Validator(
            problem.module, arrays, problem.threads,
            measure=front.measure, varying=front.variation, exact=exact,
        )  # fmt: skip

    def _stress(self, others: Mapping[str, np.ndarray], start: Distant) -> Stress:
        """Inputs of other kinds, those first that are unsafe under the first setting: with them a
        setting that is no better is known soon.
        """
        validator = self._validator(others)
        wrong = validator.wrong(self._approximations(start), start.point.error)
        hard = validator.only(np.argsort(~wrong, kind="stable"))
        return Stress(hard, measure(self.problem.module, others))

    def _approximations(self, found: Distant) -> Mapping[str, Approximation]:
        return self._objective.with_room(found.room).approximations(found.point.settings)

    def _tried(self, validator: Validator, found: Distant) -> Validation:
        return validator.measure(self._approximations(found), found.point.error)

    def _unsafe(self, stress: Stress, found: Distant, most: int | None = None) -> int:
        """Number of inputs of other kinds that are unsafe; some number above ``most`` if there are
        more than that.
        """
        key = found.point.settings, tuple(sorted(found.room.items()))
        if key not in self._counts:
            error = found.point.error
            count = stress.validator.unsafe(self._approximations(found), error, most)
            if most is not None and count > most:
                return count
            self._counts[key] = count
        return self._counts[key]

    def _begin(self) -> None:
        """The next evaluations are of another setting."""
        self._until = min(MOST, self._done + AT_ONCE)

    def _counted(self) -> bool:
        """Whether one more evaluation may be made, which then counts."""
        if self._done >= self._until:
            return False
        self._done += 1
        self.report(self._done)
        return True

    def _candidates(self, picked: Point) -> Iterator[Distant]:
        """The most accurate setting within the price, with room and without; then the one that was
        picked, with room and without.
        """
        for point in dict.fromkeys([self._start(picked), picked]):
            yield self.widened(point, self._most(picked))
            yield Distant(point)

    def _start(self, picked: Point) -> Point:
        """The most accurate setting within the price."""
        most = self._most(picked)
        near = [
            point
            for point in self.front.points
            if point.cost(self.front.cost) <= most
            and self.wanted.allows(point)
            and point.trusted(self.front.measure)
        ]
        return min([picked, *near], key=lambda point: (point.error, point.cost(self.front.cost)))

    def _improved(self, found: Distant, picked: Point, stress: Stress) -> Distant:
        """A setting with more room and higher degrees at some ops, under which fewer inputs of
        other kinds are unsafe: first at the op whose ranges the most of them leave.
        """
        self._begin()
        least = self._unsafe(stress, found)
        for place in self._left_first(stress, found) if least else ():
            best, error = found, -np.inf  # fewer of the inputs must be unsafe, or as few of a move
            for one in self._moves(found, place, picked).values():
                count = self._unsafe(stress, one, least)
                if (count, one.point.error) < (least, error):
                    least, best, error = count, one, one.point.error
            found = best
        return self._priced(found, picked)

    def _priced(self, found: Distant, picked: Point) -> Distant:
        cost = picked.cost(self.front.cost)
        return replace(found, price=found.point.cost(self.front.cost) / cost - 1)

    def _left_first(self, stress: Stress, found: Distant) -> list[NonlinearPlace]:
        """The ops of the blocks whose ranges inputs leave, those of the most inputs first."""
        ranges = with_room(self.problem.calibration, found.room).ranges
        left = {
            known.value: len({one.input for one in violations(measured, known, None)})
            for measured, known in zip(stress.measured, ranges, strict=True)
        }
        places = [one for one in self._objective.places if one.block is not None]
        places = [one for one in places if left.get(one.op.value.name)]
        return sorted(places, key=lambda one: -left[one.op.value.name])

    def _moves(
        self, found: Distant, place: NonlinearPlace, picked: Point
    ) -> dict[tuple[int, float], Distant]:
        """Settings with higher degrees and more room at an op, within the price and the error, by
        how much the degrees are raised and by the room.
        """
        name, most = place.op.value.name, self._most(picked)
        within = replace(self.wanted, error=self._error(picked))
        here, moves = found.room.get(name, 0.0), {}
        rooms = [here, *(room for room in ROOMS if room > here)]
        for raised in RAISED:
            settings = self._higher(found.point.settings, place, raised)
            if raised and settings == self._higher(found.point.settings, place, raised - 1):
                break
            for room in rooms[: len(RAISED) + 1]:
                if (raised, room) == (0, here):
                    continue
                wider = {**found.room, **({name: room} if room else {})}
                objective = self._objective.with_room(wider)
                if objective.cost(settings) > most or not self._counted():
                    continue
                point = objective.evaluate(settings)
                if not within.allows(point):
                    break  # more room would cost more accuracy
                moves[raised, room] = Distant(point, wider)
        return moves

    def _higher(self, settings: Settings, place: NonlinearPlace, by: int) -> Settings:
        """Settings in which the integers of an op are greater, in all blocks that share them."""
        shared, of = self.problem.sharing, self.problem.parametrisation
        first = (place.block or 0) // shared * shared
        found = [list(layer) for layer in settings]
        for layer in found[first : first + shared]:
            for at in place.integers:
                if layer[at] > 0:
                    layer[at] = min(layer[at] + by, of.upper[at])
        return tuple(of.canonical(layer) for layer in found)

    def _most(self, picked: Point) -> float:
        """Greatest cost of a setting that is taken instead."""
        return (1 + PRICE) * picked.cost(self.front.cost)

    def _error(self, point: Point) -> float:
        """Greatest error of a setting that is made from another one."""
        return max(SPENT * (self.wanted.error or 0.0), point.error)

    def widened(self, point: Point, most: float) -> Distant:
        """The setting with room: each range as far as `ROOMS` go, until no op can have more.

        All ops are tried together. If that is too much, each half of them is tried alone.

        Args:
            point: the setting.
            most: greatest cost.
        """
        self._begin()
        found, names = Distant(point), self._names()
        within = replace(self.wanted, error=self._error(point))
        for room in ROOMS:
            found = self._roomier(found, names, room, within, most)
            names = [name for name in names if found.room.get(name) == room]
        return found

    def _names(self) -> list[str]:
        ops = [place.op for place in self._objective.places]
        known = [op for op in ops if op.definition.family in FAMILIES]
        return [op.value.name for op in sorted(known, key=lambda op: _order(op.definition.family))]

    def _roomier(
        self, found: Distant, names: Sequence[str], room: float, within: Wanted, most: float
    ) -> Distant:
        if not names or not self._counted():
            return found
        tried = {**found.room, **dict.fromkeys(names, room)}
        point = self._objective.with_room(tried).evaluate(found.point.settings)
        if within.allows(point) and point.cost(self.front.cost) <= most:
            return Distant(point, tried)
        if len(names) > 1:
            for half in (names[: len(names) // 2], names[len(names) // 2 :]):
                found = self._roomier(found, half, room, within, most)
        return found


def _order(family: str | None) -> int:
    return FAMILIES.index(family or "")
