"""The thread of the service that gives jobs to the worker, one at a time, and notes the outcome."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any

from atlasc.remote.wire import Fault
from atlasc.service.jobs import QUERY, Jobs
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics, log

SWEEP_SECONDS = 60.0
SLOWEST_RESTART = 30.0
"""Most seconds between a worker's death and the next worker."""


class Runner:
    """Runs jobs until it is stopped.

    Args:
        store, jobs, metrics: of the service.
        budget: bytes that loaded keys may take together.
    """

    def __init__(self, store: Store, jobs: Jobs, metrics: Metrics, budget: int) -> None:
        self._store, self._jobs, self._metrics, self._budget = store, jobs, metrics, budget
        self._process: subprocess.Popen[str] | None = None
        self._lines: Iterator[str] = iter(())
        self._wake, self._stop = threading.Event(), threading.Event()
        self._sending, self._deaths = threading.Lock(), 0
        self._running: sqlite3.Row | None = None
        self._started = False
        self._thread = threading.Thread(target=self._loop, name="runner", daemon=True)

    def start(self) -> None:
        """Begin with the jobs that wait."""
        self._thread.start()

    def wake(self) -> None:
        """Say that a job was added."""
        self._wake.set()

    def cancel(self, job: str) -> None:
        """Stop a job that runs, before its next op."""
        self._tell({"cancel": job})

    def forget(self, key: str) -> None:
        """Free the memory of deleted keys."""
        self._tell({"forget": key})

    def stop(self, grace: float) -> None:
        """End after the job that runs, or after ``grace`` seconds; then the job is queued again."""
        self._stop.set()
        self._wake.set()
        self._thread.join(grace)
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
        self._thread.join(10)

    @property
    def worker(self) -> int | None:
        """Process id of a worker that takes jobs; None while there is none."""
        process = self._process
        alive = process is not None and process.poll() is None
        return process.pid if process is not None and alive and self._started else None

    def _loop(self) -> None:
        swept = 0.0
        while not self._stop.is_set():
            try:
                self._put_back()  # what a full disk did not let us note
                if time.monotonic() - swept > SWEEP_SECONDS:
                    swept = time.monotonic()
                    self._jobs.sweep()
                self._metrics.waiting.set(self._jobs.waiting())
                row = self._jobs.next() if self._ready() else None
                if row is not None:
                    self._run(row)
                    continue
            except (OSError, sqlite3.Error) as error:  # a full disk: nothing is lost, try again
                log("error", "runner", error=type(error).__name__, why=str(error))
                self._put_back()
                self._stop.wait(1.0)
            self._wake.wait(1.0)
            self._wake.clear()

    def _put_back(self) -> None:
        row, self._running = self._running, None
        if row is not None:
            self._kill()  # what it computes would be noted twice
            try:
                self._jobs.put_back(row)
            except sqlite3.Error:
                self._running = row

    def _run(self, row: sqlite3.Row) -> None:
        """Give a job to the worker, and note what becomes of it."""
        self._running, job, answer = row, row["id"], f"answer-{token_hex(8)}"
        if row["program"] not in {one.program for one in self._jobs.programs}:
            why = "the service was started again without it"
            self._jobs.fail(row, Fault(error="the program is not answered any more", why=why))
            self._running = None
            return
        folder, started = self._store.job_folder(job), time.monotonic()
        log("info", "job started", job=job, tenant=row["tenant"], program=row["program"][:8])
        order = {
            "id": job, "program": row["program"], "key": row["key"],
            "key_path": str(self._store.key_path(row["tenant"], row["key"])),
            "query": str(folder / QUERY), "answer": str(folder / answer),
        }  # fmt: skip
        self._tell({"job": order})
        state = self._outcome(row, answer)
        self._running = None
        seconds = time.monotonic() - started
        self._metrics.ended(state, seconds)
        log("info", "job ended", job=job, tenant=row["tenant"], state=state, seconds=seconds)

    def _outcome(self, row: sqlite3.Row, answer: str) -> str:
        job = row["id"]
        for line in self._lines:
            told = json.loads(line)
            if told.get("progress") == job:
                self._jobs.progress[job] = told["done"]
            elif told.get("done") == job:
                self._deaths = 0
                done = self._jobs.finish(row, answer, told["seconds"])
                return "done" if done else "cancelled"
            elif told.get("failed") == job:
                self._jobs.fail(row, Fault(**told["fault"]))
                return "failed"
            elif told.get("cancelled") == job:
                return "cancelled"
            else:
                self._note(told)
        self._process = None
        if self._stop.is_set():
            self._jobs.put_back(row)
            return "queued again"
        log("error", "worker died", job=job)
        self._metrics.deaths.inc()
        self._deaths += 1
        return "queued again" if self._jobs.crashed(row) else "failed"

    def _ready(self) -> bool:
        """Start a worker if there is none; whether there is one now. One that dies again and again
        is started ever later.
        """
        if self.worker is not None:
            return True
        self._kill()
        if self._deaths and self._stop.wait(min(2.0 ** (self._deaths - 1), SLOWEST_RESTART)):
            return False
        programs = {
            one.program: (str(one.bundle.folder), one.loaded_bytes) for one in self._jobs.programs
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "atlasc.service.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip
        assert process.stdout is not None
        self._process, self._lines = process, iter(process.stdout.readline, "")
        self._tell({"start": {"programs": programs, "budget": self._budget}})
        for line in self._lines:
            if "ready" in json.loads(line):
                log("info", "worker started", pid=process.pid)
                self._started = True
                return True
        self._deaths += 1
        self._kill()
        log("error", "worker did not start")
        return False

    def _kill(self) -> None:
        process, self._process, self._started = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()

    def _note(self, told: Mapping[str, Any]) -> None:
        if "loaded" in told:
            self._metrics.loaded.set(told["loaded"])
            self._metrics.loads.inc()

    def _tell(self, order: Mapping[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            with self._sending:
                print(json.dumps(order), file=process.stdin, flush=True)
        except (OSError, ValueError):
            pass  # it died; the reading side notices
