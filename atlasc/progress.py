"""Progress of long work: what library code calls, and what reaches a caller's callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Steps = Callable[..., AbstractContextManager[Any]]
"""``steps(label, total=None, resume="")``: a context that shows progress, and gives a `Step`."""
ProgressCallback = Callable[[str, int, int | None], None]
"""``progress(what, done, total)``; the total is None if it is not known."""
Note = Callable[[str, str], None]
"""``note(headline, details)``: a warning; the details are further lines, already indented."""


def quiet(headline: str, details: str = "") -> None:
    """A note that is dropped."""


class Step:
    """The progress of a piece of long work.

    Attributes:
        label: name of the work.
        total: number of steps; None if it is not known.
        done: steps that are finished.
        note: a few words on the current step.
    """

    def __init__(
        self, label: str, total: int | None, changed: Callable[[Step], object] = lambda step: None
    ) -> None:
        self.label, self.total, self.done, self.note = label, total, 0, ""
        self._changed = changed

    def __call__(self, advance: int = 1, note: str = "") -> None:
        """Say that ``advance`` steps are done."""
        self.report(note, self.done + advance, self.total)

    def report(self, what: str, done: int, total: int | None) -> None:
        """The plain callback of library code: ``done`` of ``total`` steps, now at ``what``."""
        self.note, self.done, self.total = what, done, total
        self._changed(self)


def steps_of(progress: ProgressCallback | None) -> Steps:
    """Steps that call a plain callback at the beginning of each piece of work and in between."""

    def changed(step: Step) -> None:
        if progress is not None:
            what = f"{step.label}: {step.note}" if step.note else step.label
            progress(what, step.done, step.total)

    @contextmanager
    def steps(label: str, total: int | None = None, *, resume: str = "") -> Iterator[Step]:
        step = Step(label, total, changed)
        changed(step)
        yield step
        if step.total and step.done < step.total:  # it needed fewer steps than it might have
            step.report("", step.total, step.total)

    return steps


silent = steps_of(None)
"""Steps that show nothing."""
