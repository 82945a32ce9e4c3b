"""What a service answered, by the numbers of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.checks import Answers
from atlasc.ir.errors import counted
from atlasc.loading.inputs import Inputs
from atlasc.loading.labels import (
    class_names,
    gives_several,
    names_of_classes,
    probabilities,
    several_labels,
)
from atlasc.loading.texts.spans import Span, answered
from atlasc.run.session import joined, placed


@dataclass(frozen=True, repr=False)
class RemoteAnswers:
    """Answers of a service.

    Attributes:
        inputs: all given inputs.
        rows: numbers of the inputs that have answers.
        answers: these answers, in the order of ``rows``.
        left_out: number of an input that was not encrypted -> why.
        classes: names of the classes, if the model has names; else empty.
        lost: number of an input that was encrypted and has no answer -> why.
        several: whether an input may have several of the classes, each by itself.
        spans: the answer to each question as a part of its text; None for an input without an
            answer, for models of other tasks, and of inputs whose texts are not at hand
            (:meth:`Connection.fetch`).
    """

    inputs: Inputs
    rows: tuple[int, ...]
    answers: Answers
    left_out: Mapping[int, str]
    classes: tuple[str, ...]
    lost: Mapping[int, str] = field(default_factory=dict)
    several: bool = False
    spans: tuple[Span | None, ...] | None = None

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        inputs: Inputs,
        rows: tuple[int, ...],
        answers: Answers,
        left_out: Mapping[int, str],
        lost: Mapping[int, str],
    ) -> RemoteAnswers:
        """With what the program's model says of its classes and spans."""
        config = bundle.model.config
        classes = classes_of(bundle, answers.outputs)
        found = cls(inputs, rows, answers, left_out, classes, lost, gives_several(config))
        return replace(found, spans=answered(bundle.model, inputs, found.outputs))

    def __repr__(self) -> str:
        """Numbers of inputs alone: inputs and answers are private."""
        return f"<RemoteAnswers: {counted(len(self.rows), 'input', 'inputs')} answered>"

    @property
    def refused(self) -> dict[int, float]:
        """Number of an input whose answer cannot be right -> share of its numbers outside."""
        return {self.rows[row]: share for row, share in self.answers.refused.items()}

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """Output name -> answers ``[inputs, ...]``; NaN in rows without an answer."""
        return self.numbers()

    def shown(self) -> tuple[Span | None, ...] | dict[str, np.ndarray]:
        """What a reader wants: the spans that answer questions, otherwise the outputs."""
        return self.outputs if self.spans is None else self.spans

    def numbers(self, unchecked: bool = False) -> dict[str, np.ndarray]:
        """As ``outputs``; ``unchecked`` also shows answers that cannot be right."""
        shown = self.answers.shown(unchecked)
        return {name: placed(y, self.rows, len(self.inputs)) for name, y in shown.items()}

    @property
    def labels(self) -> list[str | None]:
        """The name of the best class of each input, or the names of all its classes, joined by
        commas, if there may be several; None without an answer. Empty if the model has no classes
        with names.
        """
        if not self.classes:
            return []
        ((name, scores),) = self.outputs.items()
        if self.several:
            shares = probabilities(scores, self.answers.functions.get(name))
            return several_labels(shares, self.classes)
        missing = np.isnan(scores).any(axis=1)
        return [
            None if lost else self.classes[int(row.argmax())]
            for row, lost in zip(np.nan_to_num(scores), missing, strict=True)
        ]


def together(parts: Sequence[RemoteAnswers]) -> RemoteAnswers:
    """Answers of several calls as those of one, whose inputs follow each other."""
    names = tuple(name for one in parts for name in one.inputs.names)
    starts = [0, *accumulate(len(one.inputs) for one in parts)]
    counts = [0, *accumulate(len(one.rows) for one in parts)]
    moved = [
        RemoteAnswers(
            one.inputs, tuple(start + row for row in one.rows), one.answers,
            {start + row: why for row, why in one.left_out.items()}, one.classes,
            {start + row: why for row, why in one.lost.items()}, one.several,
        )
        for start, one in zip(starts, parts, strict=False)
    ]  # fmt: skip
    refused = {
        count + row: share
        for count, one in zip(counts, parts, strict=False)
        for row, share in one.answers.refused.items()
    }
    outputs = joined([one.answers.outputs for one in parts])
    return RemoteAnswers(
        Inputs({}, names),
        tuple(row for one in moved for row in one.rows),
        Answers(outputs, refused, functions=parts[0].answers.functions),
        {row: why for one in moved for row, why in one.left_out.items()},
        parts[0].classes,
        {row: why for one in moved for row, why in one.lost.items()},
        parts[0].several,
    )


def classes_of(bundle: Bundle, outputs: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Names of the classes, where one output has a number for each class that the model names."""
    shapes = [values.shape for values in outputs.values()]
    known = class_names(bundle.model.config)
    if len(shapes) != 1 or len(shapes[0]) != 2 or len(set(known.values())) != shapes[0][1]:
        return ()
    return tuple(names_of_classes(bundle.model.config, shapes[0][1]))
