"""Which worker gets which job, and what becomes of jobs whose worker does not end them.

The workers here are lists of what they were asked to do; the test says what they tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atlasc.service import runner as module
from atlasc.service.jobs import QUERY, Jobs
from atlasc.service.programs import Programs, Served
from atlasc.service.runner import SAME_STARTS, Runner
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics
from atlasc.service.workers.base import Order, Tell, Worker
from tests.atlasc.service.running import until
from tests.atlasc.service.test_jobs import KEY, LIMITS, submit


class Asked(Worker):
    """Tells what a test wants it to."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.orders: list[Order] = []
        self.starts, self.cancelled, self.forgotten, self.ended = 0, set[str](), set[str](), False

    def start(self, tell: Tell) -> None:
        self.tell, self.starts = tell, self.starts + 1
        tell({"ready": 1000 + self.number, "machine": "here"})

    def run(self, order: Order) -> None:
        self.orders.append(order)

    def cancel(self, job: str) -> None:
        self.cancelled.add(job)

    def forget(self, key: str) -> None:
        self.forgotten.add(key)

    def end(self) -> None:
        self.ended = True

    def finish(self) -> None:
        """Answer the latest job, with its keys in memory from now on."""
        order = self.orders[-1]
        order.answer.write_bytes(b"answer")
        self.tell({"keys": [[order.program, order.key]]})
        self.tell({"done": 0.1})


@pytest.fixture
def jobs(tmp_path: Path, programs: Programs) -> Iterator[Jobs]:
    store = Store(tmp_path / "state")
    with store.writing() as db:
        for number, tenant in enumerate(("acme", "other")):
            row = (tenant, key(number), "c" * 64)
            db.execute("insert into keys values (?, ?, ?, 100, 100, 1, 0, null)", row)
    yield Jobs(store, programs, LIMITS)
    store.close()


@pytest.fixture
def workers() -> list[Asked]:
    return [Asked(0), Asked(1)]


@pytest.fixture
def runner(jobs: Jobs, workers: list[Asked]) -> Iterator[Runner]:
    found = Runner(jobs.store, jobs, Metrics(), workers)
    found.start()
    yield found
    found.stop(0)
    assert all(one.ended for one in workers)


def key(number: int) -> str:
    return f"{number}" * 64


@pytest.fixture
def ask(jobs: Jobs, served: Served, runner: Runner) -> Callable[[str], str]:
    def ask(tenant: str) -> str:
        folder = jobs.new_folder()
        (folder / QUERY).write_bytes(b"query")
        chosen = key(("acme", "other").index(tenant))
        name = folder.name
        job = jobs.accept(tenant, folder, served.program, chosen, name, "d" * 64)
        runner.wake()
        return job.id

    return ask


def given(workers: list[Asked]) -> list[list[str]]:
    return [[order.job for order in one.orders] for one in workers]


def test_jobs_go_where_their_keys_are(
    jobs: Jobs, workers: list[Asked], ask: Callable[[str], str]
) -> None:
    first, second = ask("acme"), ask("other")
    until(lambda: all(one.orders for one in workers))
    assert given(workers) == [[first], [second]]
    for one in workers:
        one.finish()
    until(lambda: jobs.status("other", second).state == "done")
    third = ask("other")
    until(lambda: len(workers[1].orders) == 2)
    fourth = ask("other")  # its keys are with a worker that computes: to the other one
    until(lambda: len(workers[0].orders) == 2)
    assert given(workers) == [[first, fourth], [second, third]]
    assert jobs.workers == 2


def test_tenants_take_turns_over_several_workers(
    jobs: Jobs, workers: list[Asked], ask: Callable[[str], str]
) -> None:
    mine = [ask("acme") for _ in range(4)]
    until(lambda: all(one.orders for one in workers))
    theirs = [ask("other") for _ in range(2)]
    assert given(workers) == [mine[:1], mine[1:2]]
    order: list[str] = []
    while len(order) < 4:
        before = sum(map(len, given(workers)))
        workers[0].finish()
        until(lambda before=before: sum(map(len, given(workers))) > before)  # type: ignore[misc]
        order.append(workers[0].orders[-1].job)
    assert order == [theirs[0], mine[2], theirs[1], mine[3]]


def test_a_lost_gpu_is_seen_and_another_one_answers(
    jobs: Jobs, workers: list[Asked], runner: Runner, ask: Callable[[str], str]
) -> None:
    metrics = runner._metrics
    job = ask("acme")
    until(lambda: workers[0].orders)
    for one in workers:
        one.tell({"gpu": {"total": 80, "free": 60, "keys": 20, "lost": 0}})
    until(lambda: b'atlasc_gpu_lost{worker="1"} 0.0' in metrics.text())
    assert b'atlasc_gpu_bytes{kind="keys",worker="0"} 20.0' in metrics.text()
    workers[0].start = lambda tell: lose(workers[0])  # type: ignore[method-assign]
    lose(workers[0])
    until(lambda: workers[1].orders)
    assert given(workers) == [[job], [job]]
    until(lambda: b'atlasc_gpu_lost{worker="0"} 1.0' in metrics.text())
    assert runner.ready and b'atlasc_gpu_lost{worker="1"} 0.0' in metrics.text()
    workers[1].finish()
    until(lambda: jobs.status("acme", job).state == "done")


def lose(worker: Asked) -> None:
    """Tell what a process tells whose GPU failed, in a job or at its start."""
    worker.tell({"gpu": {"lost": 1}})
    worker.tell({"died": "the CUDA device failed"})


def test_a_job_of_a_worker_that_died_runs_elsewhere(
    jobs: Jobs, workers: list[Asked], runner: Runner, ask: Callable[[str], str]
) -> None:
    job = ask("acme")
    until(lambda: workers[0].orders)
    workers[0].tell({"progress": 40})
    until(lambda: jobs.status("acme", job).done == 40)
    workers[0].tell({"died": "killed"})
    until(lambda: workers[1].orders)
    assert given(workers) == [[job], [job]]
    assert runner.ready and jobs.status("acme", job).done == 0
    workers[1].finish()
    until(lambda: jobs.status("acme", job).state == "done")
    until(lambda: workers[0].starts == 2)  # and it comes back
    assert jobs.answer("acme", job).read_bytes() == b"answer"


def test_no_worker_is_left(
    jobs: Jobs, workers: list[Asked], runner: Runner, ask: Callable[[str], str]
) -> None:
    until(lambda: runner.ready)
    for one in workers:
        one.tell({"died": "killed"})
    until(lambda: not runner.ready)
    job = ask("acme")
    assert jobs.status("acme", job).state == "queued"  # and it waits for the next start
    until(lambda: any(one.orders for one in workers))


class Unfit(Asked):
    """Dies while it starts, for the given reasons in turn, and then for the last one."""

    def __init__(self, number: int, *whys: str) -> None:
        super().__init__(number)
        self.whys = list(whys)

    def start(self, tell: Tell) -> None:
        self.starts += 1
        tell({"died": self.whys.pop(0) if len(self.whys) > 1 else self.whys[0]})


def test_a_worker_that_cannot_start_is_not_started_for_ever(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOWEST_RESTART", 0.0)
    unfit = [Unfit(0, "no memory in 1", "no memory in 22"), Unfit(1, "a", "b", "a", "c")]
    good = Asked(2)
    metrics = Metrics()
    runner = Runner(jobs.store, jobs, metrics, [*unfit, good])
    runner.start()
    until(lambda: [one.starts for one in unfit] == [SAME_STARTS, 3 + SAME_STARTS])
    until(lambda: b"atlasc_workers_ready 1.0" in metrics.text())
    assert runner.ready and not runner.failure, "the third one computes"
    runner.stop(0)
    runner = Runner(jobs.store, jobs, Metrics(), [Unfit(0, "no memory")])
    runner.start()
    until(lambda: runner.failure)
    assert runner.failure == "no memory" and not runner.ready
    runner.stop(0)


def test_deaths_in_jobs_end_no_service(
    jobs: Jobs, workers: list[Asked], runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant whose queries kill workers must not be able to."""
    monkeypatch.setattr(module, "SLOWEST_RESTART", 0.0)
    for starts in range(1, 2 * SAME_STARTS):
        until(lambda starts=starts: workers[0].starts == starts)  # type: ignore[misc]
        workers[0].tell({"died": "killed"})
    until(lambda: workers[0].starts == 2 * SAME_STARTS)
    assert not runner.failure


def test_what_cannot_be_noted_runs_again(
    jobs: Jobs, workers: list[Asked], ask: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ask("acme")
    until(lambda: workers[0].orders)

    failed: list[object] = []

    def full(*arguments: object) -> bool:
        failed.append(arguments)
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "finish", full)
        patch.setattr(jobs, "put_back", full)
        workers[0].finish()
        until(lambda: len(failed) == 2)
        assert jobs.status("acme", job).state == "running"
    until(lambda: len(workers[0].orders) == 2)
    workers[0].finish()
    until(lambda: jobs.status("acme", job).state == "done")


def test_what_is_deleted_is_told_to_all(
    jobs: Jobs, workers: list[Asked], runner: Runner, ask: Callable[[str], str]
) -> None:
    job = ask("acme")
    until(lambda: workers[0].orders)
    assert jobs.cancel("acme", job)
    runner.cancel(job)
    runner.forget(key(0))
    assert all(one.cancelled == {job} and one.forgotten == {key(0)} for one in workers)
    workers[0].tell({"cancelled": True})
    ask("other")
    until(lambda: len(workers[0].orders) == 2)


def test_an_end_puts_back_what_runs(
    jobs: Jobs, workers: list[Asked], runner: Runner, ask: Callable[[str], str]
) -> None:
    kept, lost = ask("acme"), ask("acme")
    until(lambda: all(one.orders for one in workers))
    workers[0].finish()
    runner.stop(0.5)
    assert jobs.status("acme", kept).state == "done"
    assert jobs.status("acme", lost).state == "queued"


def test_a_program_that_is_not_served_any_more(
    jobs: Jobs, served: Served, workers: list[Asked]
) -> None:
    with jobs.store.writing() as db:
        db.execute("insert into keys values ('third', ?, ?, 100, 100, 1, 0, null)", (KEY, "c" * 64))
    job = submit(jobs, served, "third")
    with jobs.store.writing() as db:
        db.execute("update jobs set program = ?", ("0" * 64,))
    assert jobs.status("third", job.id).wait_seconds == 0
    runner = Runner(jobs.store, jobs, Metrics(), workers)
    runner.start()
    until(lambda: jobs.status("third", job.id).state == "failed")
    runner.stop(1)
    fault = jobs.status("third", job.id).fault
    assert fault and "not answered any more" in fault.error
    assert given(workers) == [[], []]
