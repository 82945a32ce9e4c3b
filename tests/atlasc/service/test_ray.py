"""Jobs on two workers of a Ray cluster on this machine; what is killed is replaced."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, until
from tests.atlasc.service.test_endpoints import wait
from tests.atlasc.service.test_kills import submit, tenant
from tests.atlasc.service.test_startup import refusal

pytest.importorskip("ray", reason="needs the ray extra")
pytestmark = pytest.mark.deep("cluster")


@pytest.fixture(scope="module")
def service(tiny_cpu: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("service") / "state"
    found = Running(state, tiny_cpu.bundle, "--workers", "ray{count=2,address=local}")
    until(lambda: len(lines(found, "worker started")) == 2)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def token(service: Running, real: Party) -> str:
    return tenant(service, real, "acme")


def lines(service: Running, event: str, **facts: object) -> list[dict[str, object]]:
    """Lines of the log of an event, with these facts."""
    found = [line for line in service.log if line["event"] == event]
    return [line for line in found if facts.items() <= line.items()]


def process(service: Running, worker: object) -> int:
    """Process id of a worker."""
    return int(str(lines(service, "worker started", worker=worker)[-1]["pid"]))


def begun(service: Running, job: str) -> int:
    """Process id of the worker of a job, as soon as the job begins.

    Its progress is asked for every half second, in which a fast machine ends it.
    """
    until(lambda: lines(service, "job started", job=job))
    return process(service, lines(service, "job started", job=job)[0]["worker"])


def loaded(service: Running) -> dict[str, float]:
    """Key sets in the memory of each worker."""
    found = service.call("GET", "/metrics", service.token("watch", "metrics")).content.decode()
    pairs = re.findall(r'atlasc_keys_loaded{worker="(\d)"} (\S+)', found)
    return {worker: float(count) for worker, count in pairs}


def test_a_killed_actor_loses_nothing(
    service: Running, token: str, real: Party, expected: np.ndarray
) -> None:
    client = real.client
    jobs = [submit(service, token, client.encrypt(real.pixels[:2])) for _ in range(4)]
    os.kill(begun(service, jobs[0]), signal.SIGKILL)
    for job in jobs:
        assert wait(service, token, job) == "done"
        answer = service.call("GET", f"/jobs/{job}/answer", token).content
        np.testing.assert_allclose(client.decrypt(answer).outputs["output"], expected, atol=1e-4)
        assert len(lines(service, "job ended", job=job, state="done")) == 1
    again = lines(service, "job started", job=jobs[0])
    assert len(again) == 2 and len(lines(service, "worker died")) == 1
    assert {line["worker"] for line in lines(service, "job started")} == {0, 1}
    until(lambda: len(lines(service, "worker started")) == 3)  # and another one takes its place


def test_a_data_set_is_answered_by_all_workers(
    service: Running, real: Party, expected: np.ndarray, tmp_path: Path
) -> None:
    """Five inputs are three jobs of one call."""
    before = len(lines(service, "job started"))
    token = service.token("data")
    with atlasc.connect(service.url, token=token, folder=tmp_path / "folder") as connection:
        found = connection.query(real.pixels[:5])
    np.testing.assert_allclose(found.outputs["output"][:2], expected, atol=1e-4)
    assert found.rows == (0, 1, 2, 3, 4)
    workers = [line["worker"] for line in lines(service, "job started")[before:]]
    assert len(workers) == 3 and set(workers) == {0, 1}


def test_keys_stay_with_a_worker_until_they_are_deleted(service: Running, real: Party) -> None:
    token, before = tenant(service, real, "keys"), loaded(service)
    job = submit(service, token, real.client.encrypt(real.pixels[:1]))
    assert wait(service, token, job) == "done"
    first = lines(service, "job started", job=job)[0]["worker"]
    again = submit(service, token, real.client.encrypt(real.pixels[:1]))
    assert wait(service, token, again) == "done"
    assert lines(service, "job started", job=again)[0]["worker"] == first
    key = service.call("GET", "/keys", token).json[0]["id"]
    assert service.call("DELETE", f"/keys/{key}", token).status == 204
    until(lambda: loaded(service)[str(first)] <= before.get(str(first), 0.0))


def test_a_running_job_is_cancelled(service: Running, token: str, real: Party) -> None:
    deaths = len(lines(service, "worker died"))
    for _ in range(20):  # a fast machine may end a job before it is cancelled
        job = submit(service, token, real.client.encrypt(real.pixels[:2]))
        worker = begun(service, job)
        os.kill(worker, signal.SIGSTOP)
        assert service.call("DELETE", f"/jobs/{job}", token).status == 204
        os.kill(worker, signal.SIGCONT)
        if wait(service, token, job) == "cancelled":
            break
    else:
        pytest.fail("each of 20 jobs ended before it was cancelled")
    assert len(lines(service, "worker died")) == deaths
    assert not (service.state / "jobs" / job).exists()


def test_it_ends_with_all_that_it_started(tiny_cpu: Tiny, tmp_path: Path) -> None:
    service = Running(tmp_path / "state", tiny_cpu.bundle, "--workers", "ray")
    until(lambda: service.call("GET", "/v2/health/ready").status == 200)
    family = descendants(service.process.pid)
    listening = {place for pid in family for place in listeners(pid)}
    assert len(family) > 3 and listening and listening <= {"127.0.0.1"}
    assert service.stop() == 0
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))


def test_places_that_do_not_exist(tiny: Tiny, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (1, silent.getsockname()[1]):
            begun = time.monotonic()
            place = f"127.0.0.1:{port}"
            ray = ("--workers", f"ray{{address={place}}}")
            assert f"{place} cannot be reached" in refusal(tiny.bundle, tmp_path, *ray, "--port", 0)
            assert time.monotonic() - begun < 60  # 10 s, and the start of Python on a busy machine
    wrong = refusal(tiny.bundle, tmp_path, "--workers", "local{count=2}")
    assert "--workers local has no key 'count'" in wrong
    assert "--workers cannot be" in refusal(tiny.bundle, tmp_path, "--workers", "many")


def test_a_machine_with_another_version(tiny: Tiny, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom atlasc.service.workers import cluster\ncluster.__version__ = '0.0.9'\n"
        f"sys.argv = ['atlasc', 'serve', {str(tiny.bundle)!r}, '--state', "
        f"{str(tmp_path / 'state')!r}, '--workers', 'ray', '--port', '0']\n"
        "from atlasc.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "another version of atlasc" in done.stderr, done.stderr
    assert f"the machine {socket.gethostname()}" in done.stderr
    assert not done.stdout and "Traceback" not in done.stderr


def test_without_ray(tiny: Tiny, tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['ray'] = None\nfrom atlasc.cli import main\n"
        f"sys.argv = ['atlasc', 'serve', {str(tiny.bundle)!r}, '--state', "
        f"{str(tmp_path / 'state')!r}, '--workers', 'ray', '--port', '0']\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "pip install ray" in done.stderr, done.stderr


def descendants(pid: int) -> set[int]:
    """A process, and all that it and they started."""
    found = {pid}
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, thread.read_text().split()):
            found |= descendants(child)
    return found


def listeners(pid: int) -> set[str]:
    """Addresses at which a process listens for TCP."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
        except FileNotFoundError:
            continue
    found = set()
    for kind, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            place, state, number = (line.split()[column] for column in (1, 3, 9))
            if state == "0A" and number in own:
                words = bytes.fromhex(place.partition(":")[0])
                native = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
                found.add(socket.inet_ntop(family, native).removeprefix("::ffff:"))
    return found
