"""The thread of the service that gives jobs to workers, and notes what becomes of them.

Jobs come in the order of :meth:`Jobs.next`, one for each worker that has none. A job goes to a
worker that has its keys in memory, if one of those is free; else to the one with the fewest keys.

A worker that dies while it starts, each time for the same reason, will not start by itself. A death
in a job is another matter: a tenant may cause it, and must not end the service.
"""

from __future__ import annotations

import queue
import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex

from atlasc.remote.wire import Fault
from atlasc.service.jobs import QUERY, Jobs
from atlasc.service.records.housekeeping import Rules, prune, unknown_keys
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics, log
from atlasc.service.texts import drop_idle
from atlasc.service.tokens import note_expired
from atlasc.service.workers.base import Order, Record, Worker

SWEEP_SECONDS = 60.0
SLOWEST_RESTART = 30.0
"""Most seconds between a worker's death and its next start."""
SAME_STARTS = 5
"""After so many starts that failed for one reason, in a row, a worker is not started again."""

_NUMBERS = re.compile(r"[0-9a-f]{8,}|\d+")
"""What differs between two tellings of one reason: ids of processes and actors."""
TOLD = ("event", "by", "tenant", "token", "scopes")
"""Members of a line of the audit that the log has; ids of keys stay in the audit."""


@dataclass
class _Seat:
    """A worker, and what it does now.

    Attributes:
        state: ``gone`` until it is started (again), ``starting``, ``ready``, or ``failed``.
        row: the job that it has.
        answer: name of the file for the answer.
        since: when it got the job.
        keys: all (program, key) in its memory.
        deaths: how often it died since it last ended a job.
        again: when it may be started.
        why, same: why its last start failed, and how many did for this reason in a row.
    """

    worker: Worker
    state: str = "gone"
    row: sqlite3.Row | None = None
    answer: str = ""
    since: float = 0.0
    keys: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    deaths: int = 0
    again: float = 0.0
    why: str = ""
    same: int = 0


class Runner:
    """Runs jobs until it is stopped.

    Args:
        store, jobs, metrics: of the service.
        workers: who computes.

    Attributes:
        workers: as given.
        failure: why no worker is started any more; empty as long as one is, or may be.
    """

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        metrics: Metrics,
        workers: Sequence[Worker],
        rules: Rules | None = None,
    ) -> None:
        self._rules, self.failure = rules or Rules(), ""
        self._store, self._jobs, self._metrics = store, jobs, metrics
        self._seats, self.workers = [_Seat(worker) for worker in workers], tuple(workers)
        self._told: queue.SimpleQueue[tuple[_Seat, Record] | None] = queue.SimpleQueue()
        self._unnoted: list[sqlite3.Row] = []
        self._stop, self._give_up = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="runner", daemon=True)
        metrics.workers.set(len(workers))

    def start(self) -> None:
        """Begin with the jobs that wait."""
        self._thread.start()

    def wake(self) -> None:
        """Say that a job was added."""
        self._told.put(None)

    def cancel(self, job: str) -> None:
        """Stop a job that runs, before its next op."""
        for seat in self._seats:
            seat.worker.cancel(job)

    def forget(self, key: str) -> None:
        """Free the memory of deleted keys."""
        for seat in self._seats:
            seat.worker.forget(key)

    def stop(self, grace: float) -> None:
        """End after the jobs that run, or after ``grace`` seconds; then they are queued again."""
        self._stop.set()
        self.wake()
        self._thread.join(grace)
        self._give_up.set()
        self.wake()
        self._thread.join(10)
        for seat in self._seats:
            seat.worker.end()

    @property
    def ready(self) -> bool:
        """Whether there is a worker that takes jobs."""
        return any(seat.state == "ready" for seat in self._seats)

    # --- the thread

    def _loop(self) -> None:
        swept = 0.0
        while not (self._stop.is_set() and not self._running):
            try:
                self._put_back()  # what a full disk did not let us note
                if self._give_up.is_set():
                    for seat in self._running:
                        self._ended(seat, {"died": "the service ends"})
                    return
                if time.monotonic() - swept > SWEEP_SECONDS:
                    swept = time.monotonic()
                    self._jobs.sweep()
                    for text in drop_idle(self._store.text_folder("")):
                        log("info", "text dropped", tenant=text.parent.parent.name)
                    self._prune()
                    note_expired(self._store)
                self._metrics.waiting.set(self._jobs.waiting())
                self._metrics.running.set(len(self._running))
                self._metrics.ready.set(sum(seat.state == "ready" for seat in self._seats))
                self._tell_audit()
                if not self._stop.is_set():
                    self._start()
                    self._hand_out()
                self._hear()
            except (OSError, sqlite3.Error) as error:  # a full disk: nothing is lost, try again
                log("error", "runner", error=type(error).__name__, why=str(error))
                self._stop.wait(1.0)

    def _tell_audit(self) -> None:
        """Log what the audit got, also from commands that run beside the service."""
        for line in self._store.audit.news():
            told = {name: line[name] for name in TOLD if name in line}
            log("info", "audit", entry=told)

    def _prune(self) -> None:
        """Remove keys of no use, and free the memory of those that anybody removed."""
        for key, why in prune(self._store, self._rules, "service"):
            log("info", "keys removed", tenant=key.tenant, key=key.id[:8], why=why)
        loaded = {key for seat in self._seats for _, key in seat.keys}
        for gone in unknown_keys(self._store, iter(loaded)):
            self.forget(gone)

    @property
    def _running(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.row is not None]

    def _start(self) -> None:
        """Start the workers that are gone."""
        for seat in self._seats:
            if seat.state == "gone" and time.monotonic() >= seat.again:
                seat.worker.start(partial(self._tell, seat))
                seat.state = "starting"

    def _tell(self, seat: _Seat, record: Record) -> None:
        self._told.put((seat, record))

    def _hand_out(self) -> None:
        """Give jobs to the workers that have none."""
        while free := [one for one in self._seats if one.state == "ready" and one.row is None]:
            row = self._jobs.next()
            if row is None:
                return
            self._unnoted.append(row)
            if row["program"] not in {one.program for one in self._jobs.programs}:
                why = "the service was started again without it"
                self._jobs.fail(row, Fault(error="the program is not answered any more", why=why))
            else:
                keys = (row["program"], row["key"])
                self._give(max(free, key=lambda one: (keys in one.keys, -len(one.keys))), row)
            self._unnoted.remove(row)

    def _give(self, seat: _Seat, row: sqlite3.Row) -> None:
        seat.row, seat.answer, seat.since = row, f"answer-{token_hex(8)}", time.monotonic()
        job, program, key = row["id"], row["program"], row["key"]
        folder = self._store.job_folder(job)
        log(
            "info", "job started", job=job, tenant=row["tenant"], program=program[:8],
            worker=seat.worker.number,
        )  # fmt: skip
        if not row["crashes"]:  # another run of it did not wait since it was sent
            waited = max(0.0, time.time() - row["created"])
            self._metrics.began(self._jobs.programs.label(program), waited)
        evaluation = self._store.key_path(row["tenant"], key)
        files = (evaluation, folder / QUERY, folder / seat.answer)
        texts = self._store.text_folder(row["tenant"], key)
        seat.worker.run(Order(job, program, key, *files, texts))

    def _hear(self) -> None:
        """Wait for a worker, or a new job; note what is told."""
        try:
            told = self._told.get(timeout=1.0)
        except queue.Empty:
            return
        if told is None:
            return
        seat, record = told
        name = str(seat.worker.number)
        if "keys" in record:
            keys = frozenset((program, key) for program, key in record["keys"])
            self._metrics.loads.inc(len(keys - seat.keys))
            self._metrics.loaded.labels(name).set(len(keys))
            seat.keys = keys
        elif "gpu" in record:
            self._metrics.gpu(name, record["gpu"])
        elif "progress" in record:
            if seat.row is not None:
                self._jobs.progress[seat.row["id"]] = record["progress"]
        elif "ready" in record:
            seat.state, seat.same = "ready", 0
            self._jobs.workers = self._count()
            log(
                "info", "worker started", worker=seat.worker.number, pid=record["ready"],
                machine=record["machine"],
            )  # fmt: skip
        else:
            if "died" in record:
                log("error", "worker died", worker=seat.worker.number, why=record["died"],
                    job=None if seat.row is None else seat.row["id"])  # fmt: skip
                self._metrics.loaded.labels(name).set(0)
                self._died(seat, record["died"])
            if seat.row is not None:
                self._ended(seat, record)

    def _died(self, seat: _Seat, why: str) -> None:
        """A worker that dies again and again is started ever later, or not any more."""
        starting = seat.state == "starting"
        seat.deaths += 1
        wait = min(2.0 ** (seat.deaths - 1), SLOWEST_RESTART)
        seat.state, seat.keys, seat.again = "gone", frozenset(), time.monotonic() + wait
        self._jobs.workers = self._count()
        alike = starting and _NUMBERS.sub("", why) == _NUMBERS.sub("", seat.why)
        seat.same = seat.same + 1 if alike else int(starting)
        seat.why = why
        if seat.same < SAME_STARTS:
            return
        seat.state = "failed"
        log("error", "worker is not started again", worker=seat.worker.number, why=why,
            starts=seat.same)  # fmt: skip
        if all(one.state == "failed" for one in self._seats):
            self.failure = why
            log("error", "the service has failed", why=why)

    def _count(self) -> int:
        return max(1, sum(seat.state == "ready" for seat in self._seats))

    def _ended(self, seat: _Seat, record: Record) -> None:
        """Note how a job went; it is queued again if that cannot be noted."""
        row, seat.row = seat.row, None
        assert row is not None
        self._unnoted.append(row)
        if "done" in record:
            seat.deaths = 0
            done = self._jobs.finish(row, seat.answer, record["done"])
            state = "done" if done else "cancelled"
        elif "failed" in record:
            self._jobs.fail(row, Fault(**record["failed"]))
            state = "failed"
        elif "cancelled" in record:
            state = "cancelled"
        elif self._stop.is_set():
            self._jobs.put_back(row)
            state = "queued again"
        else:
            self._metrics.deaths.inc()
            state = "queued again" if self._jobs.crashed(row) else "failed"
        self._unnoted.remove(row)
        seconds = time.monotonic() - seat.since
        self._metrics.ended(self._jobs.programs.label(row["program"]), state, seconds)
        log(
            "info", "job ended", job=row["id"], tenant=row["tenant"], state=state, seconds=seconds,
            worker=seat.worker.number,
        )  # fmt: skip

    def _put_back(self) -> None:
        for row in list(self._unnoted):
            self._jobs.put_back(row)  # nothing happens if its end was noted
            self._unnoted.remove(row)
