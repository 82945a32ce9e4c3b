"""A worker that is a process of this machine; :mod:`.process` is what runs in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from atlasc.service.workers.base import Loadable, Order, Tell, Worker
from atlasc.service.workers.executor import memory_budget
from atlasc.targets.base import Target
from atlasc.targets.machine import available_threads

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Names the GPUs that a process may use; the driver reads it."""


class LocalWorker(Worker):
    """A process that is started and killed.

    Args:
        number: see :class:`Worker`.
        programs: identity of a program -> the program.
        budget: bytes that loaded keys may take together.
        engine: that computes on a GPU; empty: one on the processors.
        environment: variables of the process, beside those of this one.
    """

    def __init__(
        self,
        number: int,
        programs: Mapping[str, Loadable],
        budget: int,
        engine: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(number)
        self._start = {"programs": dict(programs), "budget": budget, "engine": engine}
        self._environment = environment or {}
        self._process: subprocess.Popen[str] | None = None
        self._sending = threading.Lock()

    def start(self, tell: Tell) -> None:
        """Start a process, in place of one that died."""
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "atlasc.service.workers.process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            env=os.environ | self._environment,
        )  # fmt: skip
        threading.Thread(target=_listen, args=(process, tell), daemon=True).start()
        self._say({"start": self._start})

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


def gpu_workers(
    programs: Mapping[str, Loadable], target: Target, memory: int | None
) -> list[Worker]:
    """A worker for each GPU, which sees no other; the processors are divided among them.

    Args:
        programs: as of :class:`LocalWorker`.
        target: of these programs.
        memory: bytes that loaded keys may take on each; None: half of the smallest.

    Raises:
        AtlasError: the keys of one tenant of a program do not fit.
    """
    gpus, engine = target.gpus(), target.runtime_engine
    sizes = {one.model: one.loaded_bytes for one in programs.values()}
    budget = memory_budget(sizes, memory, gpu=min(one.size for one in gpus))
    seen = [one.strip() for one in os.environ.get(VISIBLE, "").split(",") if one.strip()]
    threads = str(max(1, available_threads() // len(gpus)))
    return [
        LocalWorker(
            number, programs, budget, engine,
            {VISIBLE: seen[number] if seen else str(number), "ATLASC_THREADS": threads},
        )
        for number in range(len(gpus))
    ]  # fmt: skip


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
