"""Answers to some inputs, beside those of the polynomials and of the model in the clear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from atlasc.loading.inputs import Inputs
from atlasc.run.session import RunResult
from atlasc.run.timing import Timing


@dataclass(frozen=True)
class ProgramAnswers:
    """Answers to some inputs. A row belongs to each input that was given.

    Attributes:
        inputs: what was given.
        rows: which of the inputs were encrypted.
        answer: to these: outputs, what the polynomials give in the clear, and seconds.
        refused: row of an input without an answer: why.
        warnings: what a user should know, a text each.
        unchecked: whether answers are shown that are far outside of what calibration saw.
        agreements: how far each answer agrees with the model's, from 0 to 1, in the order of
            ``rows``; None where the program does not know the model's.
    """

    inputs: Inputs
    rows: tuple[int, ...]
    answer: RunResult
    refused: Mapping[int, str]
    warnings: tuple[str, ...]
    unchecked: bool = False
    agreements: tuple[float, ...] | None = None

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Answers by output name, ``[inputs, ...]``; NaN in the rows that are refused."""
        shown = self.answer.shown(self.unchecked)
        return {name: self._placed(values) for name, values in shown.items()}

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """What the polynomials give in the clear, likewise; NaN for inputs that are left out."""
        expected = self.answer.finished(self.answer.expected)
        return {name: self._placed(values) for name, values in expected.items()}

    @property
    def unanswered(self) -> frozenset[int]:
        """Rows without an answer."""
        shown = self.rows if self.unchecked else ()
        return frozenset(self.refused).difference(shown)

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """By output name, for each input the largest difference from the polynomials' answer,
        before the function that may end an output.
        """
        return self._distances(self.answer.expected)

    @property
    def max_error(self) -> float:
        """Greatest difference of an answer from the polynomials' answer; NaN without answers."""
        return self.answer.max_error

    @property
    def mean_error(self) -> float:
        """Mean absolute difference from the polynomials' answers."""
        return self.answer.mean_error

    @property
    def model(self) -> dict[str, np.ndarray] | None:
        """The model's answers in the clear, like ``expected``; None where they are not known."""
        if self.answer.model is None:
            return None
        model = self.answer.finished(self.answer.model)
        return {name: self._placed(values) for name, values in model.items()}

    @property
    def model_errors(self) -> dict[str, np.ndarray] | None:
        """By output name, for each input the largest difference from the model's answer, likewise
        before that function.
        """
        return None if self.answer.model is None else self._distances(self.answer.model)

    @property
    def model_max_error(self) -> float | None:
        """Greatest difference of an answer from the model's; None where that is not known."""
        return self.answer.model_max_error

    @property
    def agreement(self) -> float | None:
        """Share of the answers that agree with the model's; None where that is not known."""
        return None if self.agreements is None else float(np.mean(self.agreements))

    @property
    def seconds(self) -> dict[str, float]:
        """Time by phase: keys, encrypt, execute, decrypt."""
        return self.answer.seconds

    @property
    def target(self) -> str:
        """What it ran on."""
        return self.answer.target

    @property
    def timing(self) -> Timing | None:
        """Seconds of each op; None where nothing was encrypted."""
        return self.answer.timing

    def _distances(self, others: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        before = replace(self.answer, functions={}).shown(self.unchecked)
        return {
            name: self._placed(np.abs(values - others[name]).reshape(len(values), -1).max(axis=1))
            for name, values in before.items()
        }

    def _placed(self, values: np.ndarray) -> np.ndarray:
        placed = np.full((len(self.inputs), *values.shape[1:]), np.nan)
        placed[list(self.rows)] = values
        return placed
