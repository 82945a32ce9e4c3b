"""The jobs of one run: sent, waited for, fetched to the disk, and then decrypted.

All answers are on this disk, and deleted from the service, before the first is decrypted: what the
client asks of the service must not depend on what it read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.files import MIB
from atlasc.progress import Note, Step
from atlasc.remote.link import Link, Refused, address
from atlasc.remote.runs import Run
from atlasc.remote.wire import FINISHED, JobStatus
from atlasc.run.session import joined

DAY = 86400.0
"""Seconds for which a service without room is asked again."""
LONGEST_POLL = 5.0
"""Most seconds between two looks at a job."""
_GONE = (404, 410, 422)
"""Of one job: unknown, its answer deleted, or failed. Other refusals are not about the job."""
_NO_ROOM = 507
Saw = Callable[[str, bytes], None]
"""``saw("query" or "answer", content)``: what the service sees of a job."""


class NoAnswer(AtlasError):
    """The service answered no query of a run, and never will."""


@dataclass
class Asking:
    """The way of a run to its answers.

    Attributes:
        keys: id of the client's keys on the service.
        lost: number of a query -> why it has no answer.
        unread: whether answers stay that could not be decrypted.
        told: number of a query -> its job, if that had ended when the query was sent.
    """

    link: Link
    bundle: Bundle
    keys: str
    run: Run
    note: Note
    saw: Saw
    lost: dict[int, str] = field(default_factory=dict)
    unread: bool = False
    told: dict[int, JobStatus] = field(default_factory=dict)

    def send(self, query: Message, rows: Sequence[int]) -> None:
        """Send a query. While the service has no room, answers that are ready are fetched.

        Raises:
            AtlasError: the service refuses it, has no room for a day, or cannot be reached.
        """
        content, number = query.to_bytes(), self.run.begin(query.query, rows)
        self.saw("query", content)
        place = address("jobs", keys=self.keys, program=self.bundle.manifest.program)
        headers = {"Content-Type": "application/octet-stream"}
        ends = time.monotonic() + DAY
        while True:
            try:
                job = self.link.send("POST", place, JobStatus, content, headers=headers, queue=0.0)
                break
            except Refused as refused:
                # What fills the tenant's share of the disk may be the answers of this very run.
                mine = refused.status == _NO_ROOM and any(self._open())
                wait = refused.wait or (1.0 if mine else None)
                if wait is None or time.monotonic() + wait > ends:
                    raise
            if not self._collect():
                time.sleep(wait)
        self.run.accepted(number, job.id)
        if job.state in FINISHED:  # the same query was sent before
            self.told[number] = job

    def wait(self, step: Step) -> None:
        """Fetch all answers, in the order of the queries.

        Raises:
            AtlasError: the service refuses more than a job, or cannot be reached.
        """
        for number, part in enumerate(self.run.parts):
            if number in self.lost or self.run.has(number):
                step.report("", 100 * (number + 1), step.total)
                continue
            if not part.job:
                self.lost[number] = "it was not sent"
                continue
            pause = 0.1
            while not self._fetched(number, step):
                time.sleep(pause)
                pause = min(1.5 * pause, LONGEST_POLL)
            step.report("", 100 * (number + 1), step.total)

    def decrypt(
        self, decrypt: Callable[[bytes], Answers], step: Step
    ) -> tuple[tuple[int, ...], Answers]:
        """The numbers of the inputs that have answers, and these.

        Raises:
            NoAnswer: the service has none.
            AtlasError: none can be decrypted.
        """
        found: list[tuple[tuple[int, ...], Answers]] = []
        first: AtlasError | None = None
        limit = Message.largest("answer", self.bundle)
        for number, part in enumerate(self.run.parts):
            if number in self.lost:
                continue
            try:
                content = self.run.answer(number, limit)
                assert content is not None, "wait() has fetched it"
                found.append((part.rows, decrypt(content)))
            except AtlasError as error:
                first, self.lost[number], self.unread = first or error, error.what, True
            step.report("", number + 1, step.total)
        if not found and first is not None:
            raise first
        if not found:
            why = next(iter(self.lost.values()), "nothing was asked")
            raise NoAnswer(f"the service has no answer: {why}", remedy="ask again")
        rows = [row for part, _ in found for row in part]
        starts = [sum(len(part) for part, _ in found[:at]) for at in range(len(found))]
        refused = {
            start + row: share
            for start, (_, one) in zip(starts, found, strict=True)
            for row, share in one.refused.items()
        }
        outputs = joined([one.outputs for _, one in found])
        return tuple(rows), Answers(outputs, refused, functions=found[0][1].functions)

    @property
    def lost_rows(self) -> dict[int, str]:
        """Number of an input whose query has no answer -> why."""
        return {
            row: why for number, why in self.lost.items() for row in self.run.parts[number].rows
        }

    def find_jobs(self) -> None:
        """Find the jobs of queries that were sent by a process that did not hear of it."""
        unknown = {p.query: n for n, p in enumerate(self.run.parts) if not p.job}
        if unknown:
            for job in self.link.get(address("jobs"), list[JobStatus]):
                if job.query in unknown:
                    self.run.accepted(unknown[job.query], job.id)

    def cancel(self) -> None:
        """Give up: have the service delete the jobs, and forget the run."""
        for part in self.run.parts:
            if part.job:
                self._delete(address("jobs", part.job))
        self.run.remove()

    # --- inside

    def _open(self) -> list[int]:
        """Numbers of the queries that wait for their answers."""
        return [
            number
            for number, part in enumerate(self.run.parts)
            if part.job and number not in self.lost and not self.run.has(number)
        ]

    def _collect(self) -> bool:
        """Fetch the answers that are ready, the oldest first; returns whether there was one."""
        before = len(waiting := self._open())
        for number in waiting:
            if not self._fetched(number):
                break
        return len(self._open()) < before

    def _fetched(self, number: int, step: Step | None = None) -> bool:
        """Look at a job; fetch its answer, or note that there is none, if it has ended."""
        place = address("jobs", self.run.parts[number].job)
        try:
            job = self.told.get(number) or self.link.get(place, JobStatus)
            if job.state not in FINISHED:
                if step is not None:
                    ahead = counted(job.ahead, "job ahead", "jobs ahead")
                    done = 100 * number + min(job.done, 99)
                    step.report(ahead if job.ahead else job.state, done, step.total)
                return False
            if job.state != "done":
                self.lost[number] = _why(job)
                return True
            limit = Message.largest("answer", self.bundle)
            content = self.link.fetch("GET", f"{place}/answer", limit=limit)
        except Refused as refused:
            if refused.status not in _GONE:
                raise
            self.lost[number] = ": ".join(filter(None, (refused.what, refused.why)))
            return True
        self.saw("answer", content)
        self.run.keep(number, content)
        self._delete(place)
        return True

    def _delete(self, place: str) -> None:
        """Have the service delete an answer that is on this disk."""
        try:
            self.link.fetch("DELETE", place, limit=MIB)
        except Refused as refused:
            if refused.status not in _GONE:
                self._left(refused)
        except AtlasError as error:
            self._left(error)

    def _left(self, error: AtlasError) -> None:
        why = ": ".join(filter(None, (error.what, error.why)))
        self.note(
            "an answer that is on this disk also stays on the service",
            f"  why: {why}\n  what to do: nothing; the service deletes it after a time",
        )


@contextmanager
def cancelled(asking: Asking) -> Iterator[None]:
    """Cancel jobs if the block fails."""
    try:
        yield
    except BaseException:
        asking.cancel()
        raise


@contextmanager
def not_lost(run: Run) -> Iterator[None]:
    """Say in an error that answers are not lost."""
    try:
        yield
    except AtlasError as error:
        if sent := sum(bool(part.job) for part in run.parts):
            last = f"atlasc query --fetch takes {counted(sent, 'answer', 'answers')} later"
            error.remedy = "; ".join(filter(None, (error.remedy, last)))
            error.reword(str)
        raise


def _why(job: JobStatus) -> str:
    fault = job.fault
    return job.state if fault is None else ": ".join(filter(None, (fault.error, fault.why)))
