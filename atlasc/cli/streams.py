"""Standard streams that are closed, or that nobody reads any more."""

from __future__ import annotations

import os
import select
import sys


def open_closed() -> None:
    """Open standard streams that are closed (``atlasc ... >&-``), and throw away what they get.

    Otherwise the next file that is opened would have the number of standard output, and whatever a
    library prints there would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def flush() -> None:
    """Print what is still held back, so that an error of writing it is known.

    Raises:
        OSError: the output cannot be written.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def reader_left() -> bool:
    """Whether a reader of standard output or standard error closed its end of the pipe."""
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def throw_away() -> None:
    """Throw away all further output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)
