"""Jobs: queries that were accepted, and their answers.

The name of a query, 128 random bits that its client chose, is what makes a job unique: the same
query sent again is the same job, and a query is answered once, whatever is killed in between.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from atlasc.files import remove
from atlasc.remote.wire import FINISHED, Fault, JobState, JobStatus
from atlasc.service.faults import Refusal
from atlasc.service.programs import Programs
from atlasc.service.store import Store
from atlasc.service.uploads import quota_spent

CRASHES = 2
"""After so many deaths of the process that computed it, a job has failed."""
QUERY = "query"
ENCRYPT_AGAIN = "encrypt the inputs again"
FORGOTTEN = 10
"""A finished job is forgotten after so many times the time that its answer is kept."""
MOST_ENDED = 1000
"""Jobs of one tenant that have ended, without an answer, and are remembered."""
_PLACES = ", ".join(f"'{state}'" for state in FINISHED)


@dataclass(frozen=True)
class Limits:
    """What one service, and one tenant of it, may take.

    Attributes:
        queue: jobs that wait, of all tenants together.
        tenant_queue: jobs of one tenant that wait.
        quota: bytes on disk of one tenant.
        keep: seconds that an answer is kept.
    """

    queue: int
    tenant_queue: int
    quota: int
    keep: float


@dataclass
class Jobs:
    """The jobs of all tenants.

    Attributes:
        progress: job -> hundredths of the predicted work; only of running jobs.
        measured: program -> seconds of an answer, as a moving mean.
        workers: how many jobs run at once.
    """

    store: Store
    programs: Programs
    limits: Limits
    progress: dict[str, int] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    workers: int = 1

    def recover(self) -> int:
        """Queue again what ran when the last service ended; returns how many jobs that are.

        A state that was copied while it was written may lack files that the database names: such a
        job has failed, or has no answer any more.
        """
        with self.store.writing() as db:
            again = db.execute(
                "update jobs set state = 'queued', started = null where state = 'running'"
            ).rowcount
        known = {row["id"]: row for row in self.store.rows("select id, state, answer from jobs")}
        for job, noted in known.items():
            self._require_file(job, noted)
        for folder in (self.store.folder / "jobs").iterdir():
            row = known.get(folder.name)
            if row is None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            needed = row["answer"] if row["state"] in FINISHED else QUERY
            for path in folder.iterdir():
                if path.name != needed:
                    remove(path)
        return int(again)

    def _require_file(self, job: str, row: sqlite3.Row) -> None:
        ended = row["state"] in FINISHED
        name = row["answer"] if ended else QUERY
        if name is None or (self.store.job_folder(job) / name).is_file():
            return
        if not ended:
            why = "the service was restored from a copy without it"
            fault = Fault(error="the query is not there any more", why=why, remedy=ENCRYPT_AGAIN)
            self._end(row, "failed", fault)
            return
        with self.store.writing() as db:
            gone = "update jobs set answer = null, answer_bytes = 0 where id = ?"
            db.execute(gone, (job,))

    # --- what callers ask

    def find(self, tenant: str, query: str) -> str | None:
        """The job of a query that was sent before."""
        sql = "select id from jobs where tenant = ? and query = ?"
        row = self.store.row(sql, tenant, query)
        return None if row is None else str(row["id"])

    def require_room(self, tenant: str, size: int) -> None:
        """Refuse a job that the queue or the tenant's share has no room for.

        Raises:
            Refusal: with the seconds after which there will probably be room.
        """
        waiting = self.store.rows(
            "select tenant, count(*) n from jobs where state = 'queued' group by tenant"
        )
        mine = sum(row["n"] for row in waiting if row["tenant"] == tenant)
        limits = self.limits
        if sum(row["n"] for row in waiting) >= limits.queue or mine >= limits.tenant_queue:
            raise Refusal(
                429,
                "too many jobs wait",
                why=f"{mine} are yours, of at most {limits.tenant_queue}; all tenants together may "
                f"have {limits.queue}",
                remedy="send the query again later; the same query stays one job",
                retry_after=max(1.0, self._wait("state = 'running'")[1]),
            )
        used = self.store.used_bytes(tenant)
        if used + size > limits.quota:
            raise quota_spent(used, size, limits.quota)

    def new_folder(self) -> Path:
        """A folder for a query that is on its way; its name will be that of the job."""
        folder = self.store.job_folder(secrets.token_hex(16))
        folder.mkdir(mode=0o700)
        return folder

    def accept(
        self, tenant: str, folder: Path, program: str, key: str, query: str, digest: str
    ) -> JobStatus:
        """Make a job of a checked query that lies in a new folder, on the disk.

        The same query again is the job that it was; the folder is removed then.

        Raises:
            Refusal: another query has this name; no room; or the keys are gone.
        """
        size = (folder / QUERY).stat().st_size
        with self.store.writing() as db:
            old = db.execute(
                "select id, digest from jobs where tenant = ? and query = ?", (tenant, query)
            ).fetchone()
            if old is None:
                self.require_room(tenant, size)
                ready = "select ready from keys where tenant = ? and id = ?"
                row = db.execute(ready, (tenant, key)).fetchone()
                if row is None or not row["ready"]:
                    raise Refusal(409, "these keys are not whole on the server")
                db.execute(
                    "insert into jobs (id, tenant, program, key, query, digest, size, state, "
                    "created, crashes, answer_bytes) "
                    "values (?, ?, ?, ?, ?, ?, ?, 'queued', ?, 0, 0)",
                    (folder.name, tenant, program, key, query, digest, size, time.time()),
                )
                use = "update keys set used = ? where tenant = ? and id = ?"
                db.execute(use, (time.time(), tenant, key))
                return self.status(tenant, folder.name)
        shutil.rmtree(folder)
        if old["digest"] != digest:
            raise Refusal(
                409,
                "another query has this name",
                why="a name belongs to one query, and a query is answered once",
                remedy=ENCRYPT_AGAIN,
            )
        return self.status(tenant, old["id"])

    def status(self, tenant: str, job: str) -> JobStatus:
        """A job of a tenant.

        Raises:
            Refusal: the tenant has no such job, whatever other tenants have.
        """
        row = self._row(tenant, job)
        state: JobState = row["state"]
        ahead, wait = 0, None
        if state == "running":
            left = 1 - self.progress.get(row["id"], 0) / 100
            wait = left * self._whole(row["program"])
        elif state == "queued":
            before = "state = 'running' or (state = 'queued' and number <= ?)"
            ahead, wait = self._wait(before, row["number"])
        return JobStatus(
            id=row["id"], state=state, program=row["program"], query=row["query"],
            done=100 if state == "done" else self.progress.get(row["id"], 0),
            ahead=max(0, ahead - 1), wait_seconds=wait, answer_bytes=row["answer_bytes"],
            fault=None if row["fault"] is None else Fault(**json.loads(row["fault"])),
        )  # fmt: skip

    def all(self, tenant: str) -> list[JobStatus]:
        """The jobs of a tenant that are known, the oldest first; at most a hundred."""
        sql = "select id from jobs where tenant = ? order by number desc limit 100"
        return [self.status(tenant, row["id"]) for row in reversed(self.store.rows(sql, tenant))]

    def answer(self, tenant: str, job: str) -> Path:
        """The file of an answer.

        Raises:
            Refusal: there is no such job, or no answer to it, or not any more.
        """
        row = self._row(tenant, job)
        if row["state"] == "failed":
            fault = Fault(**json.loads(row["fault"]))
            raise Refusal(422, fault.error, why=fault.why, remedy=fault.remedy)
        if row["state"] != "done":
            raise Refusal(
                409,
                "this job has no answer",
                why=f"it is {row['state']}",
                retry_after=None if row["state"] in FINISHED else 1,
            )
        if row["answer"] is None:
            raise Refusal(410, "the answer was deleted, or kept long enough")
        return self.store.job_folder(job) / row["answer"]

    def cancel(self, tenant: str, job: str) -> bool:
        """End a job that is not finished; of a finished one, delete the answer. Returns whether
        the job ran.
        """
        row = self._row(tenant, job)
        self._end(row, "cancelled")
        with self.store.writing() as db:
            db.execute(
                "update jobs set answer = null, answer_bytes = 0 where id = ? and tenant = ?",
                (job, tenant),
            )
        shutil.rmtree(self.store.job_folder(job), ignore_errors=True)
        return bool(row["state"] == "running")

    def waiting(self) -> int:
        """Number of jobs that wait."""
        return self.store.number("select count(*) from jobs where state = 'queued'")

    def wait_seconds(self) -> float:
        """Predicted seconds until all jobs that are known now are done."""
        return self._wait("state in ('queued', 'running')")[1]

    def seconds(self, program: str) -> float | None:
        """Seconds of an answer: measured, or predicted."""
        return self.measured.get(program) or self.programs.by_program(program).seconds

    # --- what the runner does

    def next(self) -> sqlite3.Row | None:
        """The next job, now running: the oldest of the tenant that waits longest for its turn."""
        with self.store.writing() as db:
            row: sqlite3.Row | None = db.execute(
                "select * from jobs j where state = 'queued' order by coalesce((select max(started)"
                " from jobs o where o.tenant = j.tenant), 0), number limit 1"
            ).fetchone()
            if row is not None:
                db.execute(
                    "update jobs set state = 'running', started = ? where id = ?",
                    (time.time(), row["id"]),
                )
                self.progress[row["id"]] = 0
        return row

    def finish(self, row: sqlite3.Row, answer: str, seconds: float) -> bool:
        """Note the answer of a running job; False if the job was cancelled meanwhile."""
        folder = self.store.job_folder(row["id"])
        with suppress(FileNotFoundError):
            size = (folder / answer).stat().st_size
            with self.store.writing() as db:
                done = db.execute(
                    "update jobs set state = 'done', finished = ?, answer = ?, answer_bytes = ?, "
                    "size = 0 where id = ? and state = 'running'",
                    (time.time(), answer, size, row["id"]),
                ).rowcount
            if done:
                (folder / QUERY).unlink(missing_ok=True)
                before = self.measured.get(row["program"], seconds)
                self.measured[row["program"]] = (before + seconds) / 2
                self.progress.pop(row["id"], None)
                return True
        self.progress.pop(row["id"], None)
        (folder / answer).unlink(missing_ok=True)
        with suppress(OSError):  # a cancelled job has no other files
            folder.rmdir()
        return False

    def fail(self, row: sqlite3.Row, fault: Fault) -> None:
        """Note why a running job has no answer."""
        if self._end(row, "failed", fault):
            self._forget_files(row["id"])

    def crashed(self, row: sqlite3.Row) -> bool:
        """Queue a job again whose process died; False if it has failed now."""
        with self.store.writing() as db:
            db.execute("update jobs set crashes = crashes + 1 where id = ?", (row["id"],))
        if row["crashes"] + 1 >= CRASHES:
            why = f"its process died {CRASHES} times; the log of the service says of what"
            self.fail(row, Fault(error="the job could not be computed", why=why))
            return False
        self.put_back(row)
        return True

    def put_back(self, row: sqlite3.Row) -> None:
        """Queue a running job again."""
        with self.store.writing() as db:
            db.execute(
                "update jobs set state = 'queued', started = null where id = ? and "
                "state = 'running'",
                (row["id"],),
            )
        self.progress.pop(row["id"], None)

    def sweep(self) -> None:
        """Delete answers that were kept long enough, and forget jobs long after that."""
        now, keep = time.time(), self.limits.keep
        old = self.store.rows(
            f"select id from jobs where state in ({_PLACES}) and finished < ? "
            "and answer is not null",
            now - keep,
        )
        with self.store.writing() as db:
            for row in old:
                db.execute(
                    "update jobs set answer = null, answer_bytes = 0 where id = ?", (row["id"],)
                )
            db.execute(
                f"delete from jobs where state in ({_PLACES}) and finished < ?",
                (now - FORGOTTEN * keep,),
            )
            db.execute(
                "delete from jobs where number in (select number from (select number, row_number() "
                "over (partition by tenant order by number desc) place from jobs "
                f"where state in ({_PLACES}) and answer is null) where place > ?)",
                (MOST_ENDED,),
            )
        for row in old:
            self._forget_files(row["id"])

    # --- inside

    def _row(self, tenant: str, job: str) -> sqlite3.Row:
        row = self.store.row("select * from jobs where tenant = ? and id = ?", tenant, job)
        if row is None:
            raise Refusal(404, "you have no such job here")
        return row

    def _wait(self, condition: str, *values: object) -> tuple[int, float]:
        """Number of some jobs, and the predicted seconds until all workers have done them."""
        sql = f"select program, count(*) n from jobs where {condition} group by program"
        rows = self.store.rows(sql, *values)
        count, seconds = 0, 0.0
        for row in rows:
            count, seconds = count + row["n"], seconds + row["n"] * self._whole(row["program"])
        if "running" in condition:
            for job, done in list(self.progress.items()):
                running = self.store.row("select program from jobs where id = ?", job)
                seconds -= 0 if running is None else self._whole(running["program"]) * done / 100
        return count, max(0.0, seconds) / self.workers

    def _whole(self, program: str) -> float:
        try:
            return self.seconds(program) or 0.0
        except Refusal:  # a program of an earlier start
            return 0.0

    def _end(self, row: sqlite3.Row, state: JobState, fault: Fault | None = None) -> bool:
        """End a job; False if it had ended already."""
        with self.store.writing() as db:
            ended = db.execute(
                "update jobs set state = ?, finished = ?, fault = ?, size = 0 "
                f"where id = ? and state not in ({_PLACES})",
                (state, time.time(), fault and fault.model_dump_json(), row["id"]),
            ).rowcount
        self.progress.pop(row["id"], None)
        return bool(ended)

    def _forget_files(self, job: str) -> None:
        shutil.rmtree(self.store.job_folder(job), ignore_errors=True)
