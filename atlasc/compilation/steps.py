"""Progress of long work: what library code calls, and what a caller's callback gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Steps = Callable[..., AbstractContextManager[Any]]
"""``steps(label, total=None, resume="")``: a context that shows progress."""
ProgressCallback = Callable[[str, int, int | None], None]
"""``progress(what, done, total)``; the total is None where it is not known."""


class _Step:
    def __init__(self, label: str, total: int | None, progress: ProgressCallback | None) -> None:
        self.label, self.total, self.progress, self.done = label, total, progress, 0

    def __call__(self, advance: int = 1, note: str = "") -> None:
        """One step is done."""
        self.report(note, self.done + advance, self.total)

    def report(self, what: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` steps."""
        self.done = done
        if self.progress is not None:
            self.progress(f"{self.label}: {what}" if what else self.label, done, total)


def steps_of(progress: ProgressCallback | None) -> Steps:
    """Steps that call a plain callback, at the beginning of each piece of work and in between."""

    @contextmanager
    def steps(label: str, total: int | None = None, *, resume: str = "") -> Iterator[_Step]:
        step = _Step(label, total, progress)
        step.report("", 0, total)
        yield step

    return steps


silent = steps_of(None)
"""Steps that show nothing."""
