"""Real ciphertexts, and whatever can be killed is killed: each accepted query is answered once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.progress import silent
from atlasc.remote.keys import upload_keys
from atlasc.remote.link import Link
from atlasc.remote.wire import Config
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, until
from tests.atlasc.service.test_endpoints import wait


@pytest.fixture(scope="module")
def service(tiny_cpu: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("service") / "state", tiny_cpu.bundle)
    yield found
    found.kill()


@pytest.fixture(scope="module")
def token(service: Running, real: Party) -> str:
    return tenant(service, real, "acme")


def tenant(service: Running, party: Party, name: str) -> str:
    """A token of a tenant whose keys are there."""
    found = service.token(name)
    link = Link(service.url, found)
    config = link.get("/config", Config)
    bundle = atlasc.load(party.bundle).bundle
    upload_keys(link, config, config.programs[0], bundle, party.keys, silent)
    link.close()
    return found


def submit(service: Running, token: str, query: bytes) -> str:
    found = service.call("POST", "/jobs", token, query)
    assert found.status in (200, 202), found.content
    return str(found.json["id"])


def started(service: Running, token: str, job: str) -> bool:
    found = service.call("GET", f"/jobs/{job}", token).json
    return bool(found["state"] == "running" and found["done"] > 5)


def worker(service: Running) -> int:
    return int([line for line in service.log if line["event"] == "worker started"][-1]["pid"])


def test_a_killed_service_answers_once(
    service: Running, token: str, real: Party, expected: np.ndarray
) -> None:
    client = real.client
    queries = [client.encrypt(real.pixels[:2]) for _ in range(3)]
    jobs = [submit(service, token, query) for query in queries]
    until(lambda: started(service, token, jobs[0]))
    old = worker(service)
    service.kill()
    until(lambda: not os.path.exists(f"/proc/{old}"), 20)  # it leaves no worker behind
    service.start()
    assert any(line["event"] == "jobs queued again" for line in service.log)
    assert submit(service, token, queries[1]) == jobs[1]  # a client that is not sure asks again
    for job in jobs:
        assert wait(service, token, job) == "done"
        answer = service.call("GET", f"/jobs/{job}/answer", token).content
        np.testing.assert_allclose(client.decrypt(answer).outputs["output"], expected, atol=1e-4)
    ended = [line["job"] for line in service.log if line["event"] == "job ended"]
    assert sorted(ended) == sorted(jobs)
    assert len(service.call("GET", "/jobs", token).json) == 3


@pytest.mark.deep("faults")
def test_a_killed_worker_is_replaced(
    service: Running, token: str, real: Party, expected: np.ndarray
) -> None:
    client = real.client
    job = submit(service, token, client.encrypt(real.pixels[:2]))
    until(lambda: started(service, token, job))
    os.kill(worker(service), signal.SIGKILL)
    assert wait(service, token, job) == "done"
    answer = service.call("GET", f"/jobs/{job}/answer", token).content
    np.testing.assert_allclose(client.decrypt(answer).outputs["output"], expected, atol=1e-4)
    assert service.call("GET", "/v2/health/ready").status == 200


def test_a_running_job_is_cancelled(service: Running, token: str, real: Party) -> None:
    client, before = real.client, worker(service)
    first = submit(service, token, client.encrypt(real.pixels[:2]))
    until(lambda: started(service, token, first))
    assert service.call("DELETE", f"/jobs/{first}", token).status == 204
    second = submit(service, token, client.encrypt(real.pixels[:2]))
    assert wait(service, token, second) == "done"
    assert wait(service, token, first) == "cancelled"
    assert not (service.state / "jobs" / first).exists() and worker(service) == before


def test_a_query_of_other_keys_fails_with_a_reason(
    service: Running, token: str, real: Party, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.mktemp("others") / "keys"
    atlasc.keygen(real.bundle, keys)
    query = atlasc.Client(real.bundle, keys).encrypt(real.pixels[:2])
    job = submit(service, token, query)
    assert wait(service, token, job) == "failed"
    found = service.call("GET", f"/jobs/{job}/answer", token)
    assert found.status == 422 and "key" in found.json["error"] + found.json["why"]
    assert str(service.state) not in found.content.decode()


@pytest.mark.deep("faults")
def test_sigterm_lets_the_job_end(service: Running, token: str, real: Party) -> None:
    job = submit(service, token, real.client.encrypt(real.pixels[:2]))
    until(lambda: started(service, token, job))
    assert service.stop() == 0
    ends = [line for line in service.log if line["event"] == "job ended"]
    assert ends[-1]["job"] == job and ends[-1]["state"] == "done"
    service.start()
    assert wait(service, token, job) == "done"
