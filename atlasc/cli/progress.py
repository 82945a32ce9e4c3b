"""Progress of long work on standard error: a bar on a terminal, a line now and then elsewhere.

Library code knows nothing of this module: it calls a plain function, ``progress(what, done,
total)``, and :meth:`Step.report` is one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from atlasc.ir.errors import printable

QUIET_SECONDS = 2.0
"""Work that ends sooner prints nothing when standard error is no terminal."""

LINE_SECONDS = 10.0
"""Time between two lines when standard error is no terminal."""


class Step:
    """Where a piece of long work stands; :func:`progress` makes it.

    Attributes:
        label: what is being done.
        total: number of steps, None when nobody knows.
        done: steps that are finished.
        note: a few words on the current step.
        started: time.monotonic() at the start.
    """

    def __init__(self, label: str, total: int | None) -> None:
        self.label, self.total, self.done, self.note = label, total, 0, ""
        self.started = time.monotonic()

    def __call__(self, advance: int = 1, note: str = "") -> None:
        """Say that ``advance`` steps are done."""
        self.done += advance
        self.note = note
        self._changed()

    def report(self, what: str, done: int, total: int | None) -> None:
        """The plain callback of library code: ``done`` of ``total`` steps, now at ``what``."""
        self.note, self.done, self.total = what, done, total
        self._changed()

    def line(self) -> str:
        """``label: 3/10 (30%), 0:00:12 elapsed, about 0:00:28 left``, as far as it is known."""
        elapsed = time.monotonic() - self.started
        text = f"{self.label}:"
        if self.total:
            text += f" {self.done}/{self.total} ({100 * self.done // self.total}%),"
        elif self.done:
            text += f" {self.done} done,"
        text += f" {_clock(elapsed)} elapsed"
        if self.total and 0 < self.done < self.total:
            text += f", about {_clock(elapsed / self.done * (self.total - self.done))} left"
        return printable(f"{text} [{self.note}]" if self.note else text)

    def _changed(self) -> None:
        """A terminal bar overrides this."""


@contextmanager
def progress(label: str, total: int | None = None, *, resume: str = "") -> Iterator[Step]:
    """Show how far the work of the block is, with the elapsed time and an estimate of what is left.

    ::

        with progress("searching", total=n, resume="the same command continues the search") as step:
            search(..., progress=step.report)

    Args:
        label: what is being done, "searching".
        total: number of steps; None when unknown.
        resume: what to tell a user who interrupts the block with Ctrl-C.
    """
    show = _bar if sys.stderr.isatty() else _lines
    try:
        with show(label, total) as step:
            yield step
    except KeyboardInterrupt as interrupt:
        if resume and not interrupt.args:
            interrupt.args = (resume,)
        raise


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Step]:
    from rich import progress as bars
    from rich.console import Console
    from rich.markup import escape

    display = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=30),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(elapsed_when_finished=False),
        bars.TextColumn("[dim]{task.fields[note]}"),
        console=Console(stderr=True),
    )
    task = display.add_task(escape(printable(label)), total=total, note="")

    class _BarStep(Step):
        def _changed(self) -> None:
            note = escape(printable(self.note))  # neither codes of a terminal nor of rich
            display.update(task, completed=self.done, total=self.total, note=note)

    with display:
        yield _BarStep(label, total)


@contextmanager
def _lines(
    label: str,
    total: int | None,
    *,
    quiet: float = QUIET_SECONDS,
    interval: float = LINE_SECONDS,
    stream: TextIO | None = None,
) -> Iterator[Step]:
    out: Any = stream or sys.stderr
    step, ended, printed = Step(label, total), threading.Event(), threading.Event()

    def watch() -> None:
        # A thread of its own: one step may take minutes, and a log that is silent looks dead.
        wait = quiet
        while not ended.wait(wait):
            print(step.line(), file=out, flush=True)
            printed.set()
            wait = interval

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield step
    finally:
        ended.set()
        watcher.join()
    if printed.is_set():
        elapsed = _clock(time.monotonic() - step.started)
        print(printable(f"{label}: finished in {elapsed}"), file=out, flush=True)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
