"""Progress of long work: a bar on a terminal or in a notebook, otherwise a line now and then."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from atlasc.ir.errors import printable
from atlasc.progress import ProgressCallback, Step, Steps, silent, steps_of

QUIET_SECONDS = 2.0
"""Seconds of work below which nothing is printed when standard error is no terminal."""

LINE_SECONDS = 10.0
"""Seconds between two lines when standard error is no terminal."""

LEAST_STEPS, RECENT_STEPS = 3, 32
"""Steps after which the time that is left is estimated, and the last steps that count apart."""
CELL_SECONDS = 0.2
"""Least seconds between two updates of a notebook's bar."""


def steps_for(wanted: ProgressCallback | bool | None) -> Steps:
    """What shows the steps of a function of the Python interface.

    Args:
        wanted: a callback ``progress(what, done, total)``; True for a bar or lines; False for
            nothing; None for a bar where a person watches: in a notebook or on a terminal.
    """
    if wanted is None:
        wanted = _in_notebook() or is_terminal(sys.stderr)
    if isinstance(wanted, bool):
        return progress if wanted else silent
    return steps_of(wanted)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal. A process without a console has None for its streams."""
    return stream is not None and stream.isatty()


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


_hidden: ContextVar[bool] = ContextVar("_hidden", default=False)


@contextmanager
def hidden() -> Iterator[None]:
    """Show no progress in this context."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


@contextmanager
def progress(label: str, total: int | None = None, *, resume: str = "") -> Iterator[Step]:
    """Show the progress of the block, its elapsed time and an estimate of the time left.

    ::

        with progress("searching", total=n, resume="the same command continues the search") as step:
            search(..., progress=step.report)

    Args:
        label: name of the work, such as "searching".
        total: number of steps; None when unknown.
        resume: what to tell a user who interrupts the block with Ctrl-C.
    """
    show: Steps = _cell if _in_notebook() else _bar if is_terminal(sys.stderr) else _lines
    if _hidden.get() or sys.stderr is None:
        show = silent
    try:
        with show(label, total) as step:
            yield step
            if step.total and step.done < step.total:  # it needed fewer steps than it might have
                step.report("", step.total, step.total)
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
        bars.TextColumn("{task.fields[left]}"),
        bars.TextColumn("[dim]{task.fields[note]}"),
        console=Console(stderr=True),
    )
    task = display.add_task(escape(printable(label)), total=total, note="", left="")
    pace = Pace()

    def changed(step: Step) -> None:
        left = pace.left(step)
        note = escape(printable(step.note))  # without control codes of a terminal or of rich
        display.update(
            task, completed=step.done, total=step.total, note=note,
            left="" if left is None else f"about {_clock(left)} left",
        )  # fmt: skip

    with display:
        yield Step(label, total, changed)


@contextmanager
def _cell(label: str, total: int | None) -> Iterator[Step]:
    """A bar below a notebook's cell."""
    from IPython.display import HTML, display

    started = shown = time.monotonic()
    pace = Pace()

    def page(step: Step) -> HTML:
        state = f"value={step.done} max={step.total}" if step.total else ""
        bar = "" if step.total and step.done >= step.total else f"<progress {state}></progress> "
        return HTML(bar + html.escape(line(step, time.monotonic() - started, pace.left(step))))

    def changed(step: Step) -> None:
        nonlocal shown
        pace.left(step)
        if time.monotonic() - shown >= CELL_SECONDS:
            shown = time.monotonic()
            handle.update(page(step))

    step = Step(label, total, changed)
    handle = display(page(step), display_id=True)
    try:
        yield step
    finally:
        elapsed = _clock(time.monotonic() - started)
        handle.update(HTML(html.escape(printable(f"{label}: {elapsed}"))))


@contextmanager
def _lines(
    label: str,
    total: int | None,
    *,
    quiet: float = QUIET_SECONDS,
    interval: float = LINE_SECONDS,
    stream: TextIO | None = None,
) -> Iterator[Step]:
    out, started = stream or sys.stderr, time.monotonic()
    pace, ended, printed = Pace(), threading.Event(), threading.Event()
    step = Step(label, total, pace.left)

    def watch() -> None:
        # Its own thread, because one step may take minutes and a silent log looks dead.
        wait = quiet
        while not ended.wait(wait):
            text = line(step, time.monotonic() - started, pace.left(step))
            print(text, file=out, flush=True)
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
        elapsed = _clock(time.monotonic() - started)
        print(printable(f"{label}: finished in {elapsed}"), file=out, flush=True)


class Pace:
    """Estimates the seconds that are left of some work from its steps so far.

    The first steps of a search are often quick, because their values explode early, or all known
    from an earlier run. So the slower one counts of the pace since the first count and of the last
    `RECENT_STEPS`, and nothing is said before `LEAST_STEPS`.
    """

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_STEPS)

    def left(self, step: Step) -> float | None:
        """Seconds that are left; None if this is not known. Called whenever a step changes."""
        now, done = time.monotonic(), step.done
        if self._first is None or done < self._first[1]:
            self._first = now, done
            self._recent.clear()
        if not self._recent or done > self._recent[-1][1]:
            self._recent.append((now, done))
        if not step.total or not done - self._first[1] >= LEAST_STEPS or done >= step.total:
            return None
        since = (self._first, self._recent[0])
        slowest = max((now - at) / (done - count) for at, count in since if done > count)
        return slowest * (step.total - done)


def line(step: Step, elapsed: float, left: float | None = None) -> str:
    """``label: 3/10 (30%), 0:00:12 elapsed, about 0:00:28 left``, with the parts that are known."""
    text = f"{step.label}:"
    if step.total:
        text += f" {step.done}/{step.total} ({100 * step.done // step.total}%),"
    elif step.done:
        text += f" {step.done} done,"
    text += f" {_clock(elapsed)} elapsed"
    if left is not None:
        text += f", about {_clock(left)} left"
    return printable(f"{text} [{step.note}]" if step.note else text)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
