"""Runs a program with a limit, and says in one line why it failed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.outcome import Failed

LONGEST = 300
"""Characters of a message."""


def output_of(
    command: Sequence[object], limit: float, *, log: Path | None = None,
    environment: Mapping[str, str] | None = None, errors: bool = False,
) -> str:  # fmt: skip
    """What a program prints.

    Args:
        command: the program and its arguments.
        limit: seconds after which it is stuck, and is ended with all that it started.
        log: file to which everything that it prints is appended.
        environment: variables beside those of this process.
        errors: return its standard error instead.

    Raises:
        Failed: it cannot be started, ends with another code than 0, or is stuck.
    """
    words = [str(word) for word in command]
    name = Path(words[0]).name
    try:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env=os.environ | dict(environment or {}), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise Failed(f"{name} cannot be started: {error.strerror}") from None
    try:
        printed, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} was ended after {limit:.0f} s") from None
    finally:
        _end(process)
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"$ {' '.join(words)}\n{printed}{said}\n")
    if process.returncode:
        raise Failed(f"{name} {ending(process.returncode)}: {reason(printed, said)}")
    return said if errors else printed


def _end(process: subprocess.Popen[str]) -> None:
    """End what still runs: a compiler outlives the CMake that started it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ending(code: int) -> str:
    """How a program ended."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def reason(printed: str, said: str) -> str:
    """The line that says most of why it failed."""
    lines = [line.strip() for line in f"{printed}\n{said}".splitlines() if line.strip()]
    for sign in ("FAILED ", "error: ", "Error: ", "CMake Error", "rror"):
        for at, line in enumerate(lines):
            if sign in line:  # CMake ends its first line with a colon
                more = f" {lines[at + 1]}" if line.endswith(":") and at + 1 < len(lines) else ""
                return (line + more)[:LONGEST]
    return lines[-1][:LONGEST] if lines else "it printed nothing"
