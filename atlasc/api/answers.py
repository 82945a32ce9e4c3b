"""Answers to inputs, beside the answers of the polynomials and of the model in the clear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from atlasc.client.checks import shapes
from atlasc.loading.inputs import Inputs
from atlasc.loading.texts.spans import Span
from atlasc.run.session import RunResult, placed
from atlasc.run.timing import Timing


@dataclass(frozen=True, repr=False)
class ProgramAnswers:
    """Answers to inputs. Each given input has one row.

    Attributes:
        inputs: the given inputs.
        rows: row numbers of the inputs that were encrypted.
        answer: their outputs, the outputs of the polynomials in the clear, and seconds.
        refused: row of an input without an answer -> why.
        warnings: what a user should know, one text each.
        unchecked: whether answers far outside the outputs seen in calibration are shown.
        agreements: how far each answer agrees with the model's, from 0 to 1, in the order of
            ``rows``; None if the model's answers are not known.
        from_model: output name -> errors beside the model's answers, in the order of ``rows``; see
            `model_errors`.
        spans: the answer to each question as a part of its text; None for a row without one, and
            for models of other tasks.
    """

    inputs: Inputs
    rows: tuple[int, ...]
    answer: RunResult
    refused: Mapping[int, str]
    warnings: tuple[str, ...]
    unchecked: bool = False
    agreements: tuple[float, ...] | None = None
    from_model: Mapping[str, np.ndarray] | None = None
    spans: tuple[Span | None, ...] | None = None

    def __repr__(self) -> str:
        """How the answers are, without the answers and the inputs, which are private."""
        known = "" if self.agreement is None else f"; {self.agreement:.1%} agree with the model"
        return (
            f"<atlasc.ProgramAnswers on {self.target}: {shapes(self.outputs)}; "
            f"{len(self.unanswered)} without an answer; error {self.max_error:.2g}{known}>"
        )

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Output name -> answers ``[inputs, ...]``; NaN in rows without an answer."""
        shown = self.answer.shown(self.unchecked)
        return {name: self._placed(values) for name, values in shown.items()}

    def shown(self) -> tuple[Span | None, ...] | dict[str, np.ndarray]:
        """What a reader wants: the spans that answer questions, otherwise the outputs."""
        return self.outputs if self.spans is None else self.spans

    @property
    def expected(self) -> dict[str, np.ndarray]:
        """Output name -> cleartext results of the polynomials ``[inputs, ...]``; NaN for inputs
        that were left out.
        """
        expected = self.answer.finished(self.answer.expected)
        return {name: self._placed(values) for name, values in expected.items()}

    @property
    def unanswered(self) -> frozenset[int]:
        """Rows without an answer."""
        shown = self.rows if self.unchecked else ()
        return frozenset(self.refused).difference(shown)

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """Output name -> greatest difference of one number of each answer from the polynomials'.

        The difference is taken before the function that may end an output.
        """
        before = replace(self.answer, functions={}).shown(self.unchecked)
        expected = self.answer.expected
        return {
            name: self._placed(np.abs(values - expected[name]).reshape(len(values), -1).max(axis=1))
            for name, values in before.items()
        }

    @property
    def max_error(self) -> float:
        """Greatest difference of one number from the polynomials' answers; NaN without answers."""
        return self.answer.max_error

    @property
    def mean_error(self) -> float:
        """Mean absolute difference between the answers and the polynomials' answers."""
        return self.answer.mean_error

    @property
    def model(self) -> dict[str, np.ndarray] | None:
        """The model's answers in the clear, like ``expected``; None if they are not known."""
        if self.answer.model is None:
            return None
        model = self.answer.finished(self.answer.model)
        return {name: self._placed(values) for name, values in model.items()}

    @property
    def model_errors(self) -> dict[str, np.ndarray] | None:
        """Output name -> error of each answer; NaN without an answer, None if the model's are not
        known.

        An error is the mean absolute difference of an answer's numbers from the model's, without
        padding, before the function that may end an output: what is promised.
        """
        if self.from_model is None:
            return None
        hidden = () if self.unchecked else self.answer.refused
        found = {}
        for name, errors in self.from_model.items():
            known = np.array(errors, dtype=np.float64)
            known[list(hidden)] = np.nan
            found[name] = self._placed(known)
        return found

    @property
    def model_max_error(self) -> float | None:
        """Greatest error of an answer beside the model's, see `model_errors`; NaN without answers,
        None if the model's are not known.
        """
        return self._of_errors(np.max)

    @property
    def model_mean_error(self) -> float | None:
        """Mean error of the answers beside the model's, see `model_errors`; None if the model's are
        not known.
        """
        return self._of_errors(np.mean)

    @property
    def agreement(self) -> float | None:
        """Share of the answers that agree with the model's; None if the model's are not known."""
        return None if self.agreements is None else float(np.mean(self.agreements))

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase: keys, encrypt, execute, decrypt."""
        return self.answer.seconds

    @property
    def target(self) -> str:
        """Name of the target that computed the answers."""
        return self.answer.target

    @property
    def timing(self) -> Timing | None:
        """Seconds of each op; None if nothing was encrypted."""
        return self.answer.timing

    def _of_errors(self, figure: Callable[[np.ndarray], float]) -> float | None:
        if self.model_errors is None:
            return None
        every = np.stack([*self.model_errors.values()])
        known = every[~np.isnan(every)]
        return float(figure(known)) if known.size else float("nan")

    def _placed(self, values: np.ndarray) -> np.ndarray:
        return placed(values, self.rows, len(self.inputs))
