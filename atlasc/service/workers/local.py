"""A worker that is a process of this machine; :mod:`.process` is what runs in it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from atlasc.service.workers.base import Loadable, Order, Tell, Worker


class LocalWorker(Worker):
    """A process that is started and killed.

    Args:
        number: see :class:`Worker`.
        programs: identity of a program -> the program.
        budget: bytes that loaded keys may take together.
    """

    def __init__(self, number: int, programs: Mapping[str, Loadable], budget: int) -> None:
        super().__init__(number)
        self._programs, self._budget = programs, budget
        self._process: subprocess.Popen[str] | None = None
        self._sending = threading.Lock()

    def start(self, tell: Tell) -> None:
        """Start a process, in place of one that died."""
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "atlasc.service.workers.process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip
        threading.Thread(target=_listen, args=(process, tell), daemon=True).start()
        self._say({"start": {"programs": dict(self._programs), "budget": self._budget}})

    def run(self, order: Order) -> None:
        """Send a job."""
        self._say({"job": {name: str(value) for name, value in asdict(order).items()}})

    def cancel(self, job: str) -> None:
        """Send that a job was cancelled."""
        self._say({"cancel": job})

    def forget(self, key: str) -> None:
        """Send that keys were deleted."""
        self._say({"forget": key})

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _say(self, line: Mapping[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            with self._sending:
                print(json.dumps(line), file=process.stdin, flush=True)
        except (OSError, ValueError):
            pass  # it died; the listening side notices


def _listen(process: subprocess.Popen[str], tell: Tell) -> None:
    """Pass on what a process tells, to its end."""
    assert process.stdout is not None
    why = ""
    for line in process.stdout:
        record = json.loads(line)
        if "ends" in record:
            why = record["ends"]
        else:
            tell(record)
    tell({"died": why or f"its process ended with {process.wait()}"})
