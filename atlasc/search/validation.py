"""Validation: whether answers are right on inputs that no search has seen, for points of a
front.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from atlasc.calibration.measure import input_count
from atlasc.ir.files import arrays_digest
from atlasc.ir.module import Module
from atlasc.polynomials.description import Approximation
from atlasc.search.front import Front
from atlasc.search.journal import Journal
from atlasc.search.points import Point, Settings
from atlasc.simulation.agreement import Measure, compared, promised
from atlasc.simulation.output_errors import Reference
from atlasc.simulation.scores import score
from atlasc.simulation.simulate import Part, PolynomialSimulator

MEMORY = 512 << 20
"""Bytes for values that settings with equal first layers share: enough for all values of MiniLM on
80 texts of 64 tokens."""

ProgressCallback = Callable[[str, int, int | None], None]
"""``progress(what, done, total)``; the total is None if it is not known."""
TRIED = ("held_back_error", "unsafe", "agreement", "accuracy")
"""Members of a point that are measured on held-back inputs."""
OfSettings = Callable[[Settings], Mapping[str, Approximation]]
"""Maps settings to approximations by result name."""


@dataclass(frozen=True)
class Validation:
    """The results of inputs under one setting.

    Attributes:
        error: error of the outputs (see `output_errors`); infinite if an input explodes.
        unsafe: number of inputs that explode, or whose answer differs from the model's although
            the model decides.
        exploded: number of inputs with a value that grows beyond bounds or is not finite.
        agreement: share of the inputs whose answers agree with the model's.
        accuracy: accuracy on the labelled inputs; None if there are none.
    """

    error: float
    unsafe: int
    exploded: int
    agreement: float
    accuracy: float | None = None


class Validator:
    """Runs settings of one module on its inputs.

    It uses the simulator of the search, which tells which inputs explode, and starts where a
    setting first differs from earlier ones.

    Args:
        module: an nn module; approximations of its ops are ignored.
        arrays: inputs by name, [N, ...] each.
        threads: None for the number of processors.
        shares: weight of each input in the error; None for equal weights. An input without weight
            and label does not count in any share.
        progress: called with the number of inputs whose exact outputs are known.
        measure: how agreement with the model is judged.
        varying: variation of the model's outputs from input to input; None measures it here.
        labels: [N] true classes or values; NaN for inputs without a label.
        exact: the exact outputs by name, [N, ...]; None computes them.

    Attributes:
        inputs: number of inputs.
        labelled: number of inputs with a label.
        digest: SHA-256 (hex) of the inputs and of everything that is measured on them.
    """

    def __init__(
        self,
        module: Module,
        arrays: Mapping[str, np.ndarray],
        threads: int | None = None,
        shares: Sequence[float] | None = None,
        progress: Callable[[int], None] | None = None,
        *,
        measure: Measure = "values",
        varying: float | None = None,
        labels: np.ndarray | None = None,
        exact: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.inputs = input_count(module, arrays)
        self._labels = np.full(self.inputs, np.nan) if labels is None else labels
        self.labelled = int(np.isfinite(self._labels).sum())
        facts = shares, measure, varying, self._labels.tolist()
        self.digest = arrays_digest(arrays, json.dumps(facts))
        self._arrays, self.measured_by = arrays, measure
        counted = np.ones(self.inputs, bool) if shares is None else np.asarray(shares) > 0
        self._counted = counted | np.isfinite(self._labels)
        self._simulator = PolynomialSimulator(module, threads=threads, memory=MEMORY)
        self._prepared = self._simulator.prepare(arrays, watched=True)
        if exact is None:
            exact = self._simulator.run(self._prepared, {}, progress=progress).outputs
        self._reference = Reference.of(module, arrays, exact, shares, measure)
        self.variation = varying or self._reference.variation

    @property
    def model_accuracy(self) -> float | None:
        """Accuracy of the model in the clear on the labelled inputs."""
        return score(self.measured_by, next(iter(self._reference.outputs.values())), self._labels)

    def prefix(self, approximations: Mapping[str, Approximation]) -> list[int]:
        """A sort key that makes settings with equal first layers neighbours."""
        return self._simulator.prefix(approximations)

    def measure(
        self,
        approximations: Mapping[str, Approximation],
        error: float = np.inf,
        progress: Callable[[int], None] | None = None,
    ) -> Validation:
        """Measure the inputs under approximations, which are given by result name.

        Args:
            approximations: the approximations.
            error: error of the setting on the search inputs, which determines its promise.
            progress: called with the number of inputs that are done.
        """
        answers = self._answers(approximations, error, progress)
        found = np.inf
        if not answers.lost.any():
            found = self._reference.errors(answers.outputs).error
        agreement = answers.agreement[self._counted]
        return Validation(
            found,
            int(answers.wrong.sum()),
            int(answers.lost.sum()),
            float(agreement.mean()) if len(agreement) else 1.0,
            score(self.measured_by, next(iter(answers.outputs.values())), self._labels),
        )

    def wrong(
        self, approximations: Mapping[str, Approximation], error: float = np.inf
    ) -> np.ndarray:
        """Whether each input [N] explodes, or gets another answer than the model's although the
        model decides.

        Args:
            approximations, error: see `measure`; an op without approximation is computed exactly.
        """
        return self._answers(approximations, error).wrong

    def unsafe(
        self, approximations: Mapping[str, Approximation], error: float, most: int | None = None
    ) -> int:
        """Number of unsafe inputs; some number above ``most`` if there are more than that, which
        is often known before all inputs are evaluated.

        Args:
            approximations, error: see `measure`.
            most: greatest number that matters; None for any.
        """
        found = 0
        for number in range(len(self._prepared)):
            found += int(self._answers(approximations, error, only=number).wrong.sum())
            if most is not None and found > most:
                break
        return found

    def only(self, rows: np.ndarray) -> Validator:
        """A validator on some of the inputs, in this order."""
        return Validator(
            self._simulator.module,
            {name: array[rows] for name, array in self._arrays.items()},
            self._simulator.threads,
            measure=self.measured_by,
            varying=self.variation,
            exact={name: array[rows] for name, array in self._reference.outputs.items()},
        )

    def _answers(
        self,
        approximations: Mapping[str, Approximation],
        error: float,
        progress: Callable[[int], None] | None = None,
        only: int | None = None,
    ) -> _Answers:
        """See `measure`; of one round of the inputs ``only``, if it is given."""
        rounds, rows = self._prepared, slice(None)
        if only is not None:
            before, after = (sum(map(_inputs_of, rounds[:end])) for end in (only, only + 1))
            rounds, rows = rounds[only : only + 1], slice(before, after)
        simulated = self._simulator.run(rounds, approximations, progress=progress)
        lost, outputs = simulated.exploded, simulated.outputs
        assert lost is not None
        promise = promised(self.measured_by, error, self.variation)
        module = self._simulator.module
        arrays, exact = (
            {name: array[rows] for name, array in of.items()}
            for of in (self._arrays, self._reference.outputs)
        )
        beside = compared(promise, module, arrays, outputs, exact)
        agreement = np.where(lost, 0.0, beside.agreement(promise))
        return _Answers(outputs, lost, lost | beside.wrong(promise), agreement)


def _inputs_of(parts: Sequence[Part]) -> int:
    return sum(part.inputs for part in parts)


class _Answers(NamedTuple):
    """Outputs under one setting, by name; and [N] each: which inputs exploded, which get a wrong
    answer, and how far the answers agree with the model's.
    """

    outputs: Mapping[str, np.ndarray]
    lost: np.ndarray
    wrong: np.ndarray
    agreement: np.ndarray


@dataclass(frozen=True)
class Trials:
    """Validates points on inputs that no search has seen.

    Attributes:
        validator: validator on these inputs.
        approximations: gives the approximations of settings.
        journal: journal of the search; its trials need not be repeated, and new trials are added as
            soon as they are known. None keeps nothing.
        progress: called with (what, points done, all points); the latter is not known for
            `validated_pick`.
    """

    validator: Validator
    approximations: OfSettings
    journal: Journal | None = None
    progress: ProgressCallback | None = None

    def known(self, point: Point) -> Point | None:
        """The point with its measurements on these inputs, if the journal has them."""
        key = self.validator.digest, point.settings
        found = None if self.journal is None else self.journal.trials.get(key)
        return (
            None
            if found is None
            else replace(point, **{name: getattr(found, name) for name in TRIED})
        )

    def tried(self, point: Point, done: int = 0, total: int | None = None) -> Point:
        """The point with its measurements on these inputs.

        Args:
            point: the point.
            done, total: for the progress: number of earlier points, and of all points.
        """

        def report(inputs: int) -> None:
            self.report(f"{inputs} of {self.validator.inputs} inputs", done, total)

        if (known := self.known(point)) is not None:
            return known
        found = self.validator.measure(self.approximations(point.settings), point.error, report)
        point = replace(
            point,
            held_back_error=found.error,
            unsafe=found.unsafe,
            agreement=found.agreement,
            accuracy=found.accuracy,
        )
        if self.journal is not None:
            self.journal.add_trial(point, self.validator.digest)
        return point

    def prefix(self, point: Point) -> list[int]:
        """A sort key that makes points with equal first layers neighbours."""
        return self.validator.prefix(self.approximations(point.settings))

    def report(self, what: str, done: int, total: int | None) -> None:
        """Report the progress of the validation."""
        if self.progress is not None:
            self.progress(what, done, total)


def validated(front: Front, trials: Trials) -> Front:
    """The front with the measurements of each of its points, and of the expert's, on held-back
    inputs.

    Points with equal first layers are validated one after the other. After an interrupt from the
    keyboard, the remaining points are left as they are.
    """
    points, complete = list(front.every_point), front.complete
    try:
        points = [trials.known(point) or point for point in points]
        new = [i for i, point in enumerate(points) if point.unsafe is None]
        new.sort(key=lambda i: trials.prefix(points[i]))
        for done, index in enumerate(new, len(points) - len(new)):
            points[index] = trials.tried(points[index], done, len(points))
        trials.report("settings", len(points), len(points))
    except KeyboardInterrupt:
        complete = False
    own = len(front.points)
    return replace(
        _of_trials(front, trials),
        points=tuple(points[:own]),
        expert=None if front.expert is None else points[own],
        complete=complete,
    )


def _of_trials(front: Front, trials: Trials) -> Front:
    """The front with the facts about the inputs of its validation."""
    of = trials.validator
    return replace(
        front,
        held_back=of.inputs,
        measure=of.measured_by,
        labelled=of.labelled,
        model_accuracy=of.model_accuracy,
    )


def validated_pick(front: Front, trials: Trials, pick: Callable[[Front], Point]) -> Front:
    """The front with the measurements of the point that `pick` chooses.

    A point is validated when it would be chosen. If inputs are unsafe under it, `pick` may choose
    another point, which is validated in turn. An interrupt from the keyboard ends this.

    `pick` must accept points that were not validated.
    """
    front = _of_trials(front, trials)
    try:
        for done in itertools.count():
            point = pick(front)
            if point.unsafe is not None:
                return front
            found = trials.tried(point, done)
            points = tuple(found if other == point else other for other in front.points)
            front = replace(front, points=points)
    except KeyboardInterrupt:
        pass
    return replace(front, complete=False)
