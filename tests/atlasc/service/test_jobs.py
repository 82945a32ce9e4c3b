"""The queue: bounded, fair, and the same after a kill."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.remote.wire import Fault, JobStatus
from atlasc.service.faults import Refusal, refusal_of
from atlasc.service.jobs import CRASHES, QUERY, Jobs, Limits
from atlasc.service.programs import Programs, Served
from atlasc.service.store import Store
from atlasc.service.uploads import Uploads

KEY = "7" * 64
LIMITS = Limits(queue=6, tenant_queue=4, quota=10_000, keep=3600)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "state")
    with found.writing() as db:
        for tenant in ("acme", "other", "third"):
            db.execute(
                "insert into keys values (?, ?, ?, 100, 100, 1, 0, null)", (tenant, KEY, "c" * 64)
            )
    yield found
    found.close()


@pytest.fixture
def jobs(store: Store, programs: Programs) -> Jobs:
    return Jobs(store, programs, LIMITS)


def submit(
    jobs: Jobs, served: Served, tenant: str = "acme", query: str = "", content: bytes = b"query"
) -> JobStatus:
    folder = jobs.new_folder()
    (folder / QUERY).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return jobs.accept(tenant, folder, served.program, KEY, query or token_hex(16), digest)


def finish(jobs: Jobs, content: bytes = b"answer") -> str:
    row = jobs.next()
    assert row is not None
    (jobs.store.job_folder(row["id"]) / "answer-1").write_bytes(content)
    assert jobs.finish(row, "answer-1", 2.0)
    return str(row["id"])


def test_a_job_from_query_to_answer(jobs: Jobs, served: Served) -> None:
    job = submit(jobs, served)
    assert job.state == "queued" and job.ahead == 0 and job.wait_seconds
    with pytest.raises(Refusal, match="no answer") as caught:
        jobs.answer("acme", job.id)
    assert caught.value.status == 409 and caught.value.retry_after
    assert finish(jobs) == job.id
    done = jobs.status("acme", job.id)
    assert (done.state, done.done, done.answer_bytes, done.wait_seconds) == ("done", 100, 6, None)
    assert jobs.answer("acme", job.id).read_bytes() == b"answer"
    assert [path.name for path in jobs.store.job_folder(job.id).iterdir()] == ["answer-1"]
    assert jobs.seconds(served.program) == 2.0  # measured now
    for call in (jobs.status, jobs.answer, jobs.cancel):
        with pytest.raises(Refusal) as caught:
            call("other", job.id)
        assert caught.value.status == 404
    jobs.cancel("acme", job.id)
    with pytest.raises(Refusal) as caught:
        jobs.answer("acme", job.id)
    assert caught.value.status == 410


def test_the_same_query_is_the_same_job(jobs: Jobs, served: Served) -> None:
    name = token_hex(16)
    first = submit(jobs, served, query=name)
    again = submit(jobs, served, query=name)
    assert first.id == again.id and jobs.waiting() == 1
    finish(jobs)
    assert submit(jobs, served, query=name).state == "done"
    assert jobs.next() is None
    with pytest.raises(Refusal, match="another query has this name"):
        submit(jobs, served, query=name, content=b"other")
    assert submit(jobs, served, "other", query=name).id != first.id  # another tenant's name
    assert len(list((jobs.store.folder / "jobs").iterdir())) == 2


def test_the_queue_is_bounded(jobs: Jobs, served: Served) -> None:
    for _ in range(4):
        submit(jobs, served)
    with pytest.raises(Refusal) as caught:
        submit(jobs, served)
    assert caught.value.status == 429 and (caught.value.retry_after or 0) >= 1
    submit(jobs, served, "other")
    submit(jobs, served, "other")
    with pytest.raises(Refusal) as caught:
        submit(jobs, served, "other")
    assert caught.value.status == 429
    jobs.limits = Limits(100, 100, 150, 1)
    with pytest.raises(Refusal) as caught:
        submit(jobs, served, content=b"x" * 200)
    assert caught.value.status == 507
    assert jobs.waiting() == 6


def test_tenants_take_turns(jobs: Jobs, served: Served) -> None:
    order = [("acme", 3), ("other", 2), ("third", 1)]
    names = {submit(jobs, served, tenant).id: tenant for tenant, n in order for _ in range(n)}
    found = [names[finish(jobs)] for _ in names]
    assert found == ["acme", "other", "third", "acme", "other", "acme"]


def test_what_ran_is_queued_again(jobs: Jobs, served: Served) -> None:
    first, second = submit(jobs, served), submit(jobs, served)
    row = jobs.next()
    assert row is not None and row["id"] == first.id
    folder = jobs.store.job_folder(first.id)
    (folder / "answer-half").write_bytes(b"of a worker that was killed")
    stray = jobs.new_folder()
    (stray / QUERY).write_bytes(b"of a request that was killed")
    draft = folder / ".answer-f076f6b6c3942472.719224b1b1485347.part"
    draft.mkdir()  # a worker was killed while it wrote its answer
    (draft / "file").write_bytes(b"half")
    again = Jobs(jobs.store, jobs.programs, LIMITS)
    assert again.recover() == 1
    assert not stray.exists() and [path.name for path in folder.iterdir()] == [QUERY]
    assert {finish(again), finish(again)} == {first.id, second.id}
    assert not jobs.finish(row, "answer-half", 1.0)  # what the old worker says comes too late
    assert again.answer("acme", first.id).read_bytes() == b"answer"


def test_files_that_a_copy_lacks(jobs: Jobs, served: Served) -> None:
    """A state that was copied while it was written: nothing hangs, and each job says what it is."""
    answered = submit(jobs, served)
    finish(jobs)
    ran = submit(jobs, served)
    assert jobs.next() is not None
    waits, whole = submit(jobs, served), submit(jobs, served)
    for job in (answered, ran, waits):
        shutil.rmtree(jobs.store.job_folder(job.id))
    assert jobs.recover() == 1
    for job in (ran, waits):
        found = jobs.status("acme", job.id)
        assert found.state == "failed" and found.fault and found.fault.remedy
    with pytest.raises(Refusal, match="deleted") as caught:
        jobs.answer("acme", answered.id)
    assert caught.value.status == 410 and jobs.status("acme", answered.id).answer_bytes == 0
    assert finish(jobs) == whole.id and jobs.next() is None


def test_a_job_that_kills_its_worker_fails(jobs: Jobs, served: Served) -> None:
    job = submit(jobs, served)
    for attempt in range(CRASHES):
        row = jobs.next()
        assert row is not None
        assert jobs.crashed(row) is (attempt + 1 < CRASHES)
    found = jobs.status("acme", job.id)
    assert found.state == "failed" and found.fault and "died" in found.fault.why
    with pytest.raises(Refusal, match="could not be computed"):
        jobs.answer("acme", job.id)
    assert not jobs.store.job_folder(job.id).exists()


def test_cancelled_jobs_have_no_answer(jobs: Jobs, served: Served) -> None:
    waiting, running = submit(jobs, served), submit(jobs, served)
    jobs.cancel("acme", waiting.id)
    row = jobs.next()
    assert row is not None and row["id"] == running.id
    assert jobs.cancel("acme", running.id)
    jobs.store.job_folder(running.id).mkdir()
    (jobs.store.job_folder(running.id) / "answer-1").write_bytes(b"late")
    assert not jobs.finish(row, "answer-1", 1.0)
    jobs.fail(row, Fault(error="late"))
    jobs.put_back(row)
    for job in (waiting, running):
        found = jobs.status("acme", job.id)
        assert found.state == "cancelled" and found.fault is None
        assert not jobs.store.job_folder(job.id).exists()
    assert jobs.next() is None


def test_old_answers_are_deleted(jobs: Jobs, served: Served) -> None:
    job = submit(jobs, served)
    finish(jobs)
    jobs.limits = Limits(6, 4, 10_000, keep=-1)
    jobs.sweep()
    with pytest.raises(Refusal) as caught:
        jobs.answer("acme", job.id)
    assert caught.value.status in (404, 410)
    assert not jobs.store.job_folder(job.id).exists()


def test_few_ended_jobs_are_remembered(
    jobs: Jobs, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends and cancels all day fills no disk; answers that wait stay."""
    monkeypatch.setattr("atlasc.service.jobs.MOST_ENDED", 3)
    jobs.limits = Limits(100, 100, 10_000, keep=3600)
    answered = submit(jobs, served)
    finish(jobs)
    other = submit(jobs, served, "other")
    jobs.cancel("other", other.id)
    for _ in range(10):
        jobs.cancel("acme", submit(jobs, served).id)
    waits = submit(jobs, served)
    jobs.sweep()
    known = {one.id for one in jobs.all("acme")}
    assert len(known) == 5 and {answered.id, waits.id} <= known
    assert jobs.status("other", other.id).state == "cancelled"


def test_keys_that_jobs_need_are_not_deleted(jobs: Jobs, served: Served) -> None:
    uploads = Uploads(jobs.store, jobs.programs, 1000)
    submit(jobs, served)
    with pytest.raises(Refusal, match="jobs still need these keys"):
        uploads.delete("acme", KEY)
    finish(jobs)
    uploads.delete("acme", KEY)
    with pytest.raises(Refusal, match="not whole on the server"):
        submit(jobs, served)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 507),
        (AtlasError("no", why=os.strerror(errno.ENOSPC)), 507),
        (sqlite3.OperationalError("database or disk is full"), 507),
        (sqlite3.OperationalError("database is locked"), 503),
        (AtlasError("this is no query"), 400),
        (Refusal(413, "too large"), 413),
        (OSError(errno.EIO, "Input/output error"), None),
        (ValueError("a fault of ours"), None),
    ],
)
def test_what_errors_mean(error: Exception, status: int | None) -> None:
    found = refusal_of(error)
    assert (found.status if found else None) == status
