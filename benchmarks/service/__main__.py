"""Loads and kills a service of a leveled bundle, and prints figures.

::

    python -m benchmarks.service BUNDLE INPUTS [--parts PART,PART] [--json FILE]

``BUNDLE`` is compiled for target cpu without bootstraps (``--cost levels``); ``INPUTS`` is an .npz.
The parts are status, jobs, kills, cuts, memory and ray.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import atlasc
from atlasc.remote.link import address
from atlasc.run.session import simulate
from benchmarks.service.party import SECONDS, Service, Tenant
from benchmarks.service.ray_workers import compare

PARTS = ("status", "jobs", "kills", "cuts", "memory", "ray")
RATE, ASKED = 200, 4000
"""Status requests a second, and in all."""
TOLERANCE = 1e-3


class Load:
    """What all parts share: a service, tenants, queries and the right answers."""

    def __init__(self, bundle: Path, data: Path, scratch: Path, tenants: int) -> None:
        self.service = Service(
            bundle, scratch / "state", "--queue", 600, "--tenant-queue", 600, "--rate", 100_000,
            "--quota", "100G",
        )  # fmt: skip
        names = [f"tenant-{number}" for number in range(tenants)]
        self.tenants = [Tenant(self.service, name, scratch) for name in names]
        program = atlasc.load(bundle).bundle
        with np.load(data) as file:
            rows = {name: file[name][: program.batch] for name in file.files}
        inputs = program.load_inputs(rows)
        self.inputs, self.rng = rows, random.Random(0)
        self.expected = simulate(program.client, program.poly, inputs.arrays)

    def query(self, tenant: Tenant) -> bytes:
        """A query of the inputs."""
        return tenant.client.encrypt(self.inputs)

    def right(self, tenant: Tenant, job: str) -> bool:
        """Whether the answer to a job is there and right."""
        found = tenant.client.decrypt(tenant.answer(job)).outputs
        pairs = [(found[name], self.expected[name]) for name in found]
        return all(float(np.abs(one - other).max()) < TOLERANCE for one, other in pairs)

    def wait(self, jobs: list[tuple[Tenant, str]]) -> None:
        """Wait until all jobs have ended."""
        end = time.monotonic() + SECONDS
        for tenant, job in jobs:
            while tenant.status(job).state in ("queued", "running"):
                if time.monotonic() > end:
                    raise TimeoutError(f"{job} did not end in {SECONDS:.0f} s")
                time.sleep(0.2)


def status(load: Load) -> dict[str, Any]:
    """200 requests for status and configuration a second while jobs run."""
    tenant = load.tenants[0]
    tenant.upload()
    jobs = [(tenant, tenant.submit(load.query(tenant))) for _ in range(8)]
    seconds: list[float] = []
    failures: list[int] = []
    lock, begun = threading.Lock(), time.monotonic() + 1.0
    paths = [address("jobs", jobs[-1][1]), address("config"), "/v2/health/ready",
             address("v2", "models", tenant.facts.model)]  # fmt: skip
    threads = 8

    def ask(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", load.service.port, timeout=60)
        headers = {"Authorization": f"Bearer {tenant.token}"}
        for number in range(first, ASKED, threads):
            due = begun + number / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            connection.request("GET", paths[number % len(paths)], headers=headers)
            with connection.getresponse() as answer:
                answer.read()
                late = time.monotonic() - due
                with lock:
                    seconds.append(late)
                    if answer.status != 200:
                        failures.append(answer.status)

    workers = [threading.Thread(target=ask, args=(n,)) for n in range(threads)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    lasted = time.monotonic() - begun
    load.wait(jobs)
    found = np.quantile(seconds, [0.5, 0.99, 1.0])
    milliseconds = {name: 1e3 * float(one) for name, one in zip(("p50", "p99", "max"), found)}
    return {
        "requests": len(seconds), "per_second": len(seconds) / lasted, "failures": len(failures),
        "milliseconds": milliseconds, "right": sum(load.right(*one) for one in jobs),
        "jobs": len(jobs),
    }  # fmt: skip


def jobs(load: Load, count: int = 50) -> dict[str, Any]:
    """50 jobs of three tenants, queued at once."""
    for tenant in load.tenants:
        tenant.upload()
    turns = [load.tenants[number % len(load.tenants)] for number in range(count)]
    begun = time.monotonic()
    sent = [(tenant, tenant.submit(load.query(tenant))) for tenant in turns]
    accepted = time.monotonic() - begun
    load.wait(sent)
    return {
        "jobs": count, "tenants": len(load.tenants), "accepted_in_seconds": accepted,
        "seconds": time.monotonic() - begun, "right": sum(load.right(*one) for one in sent),
    }  # fmt: skip


def kills(load: Load, count: int = 20) -> dict[str, Any]:
    """SIGKILL at random moments while jobs are sent and run; every query is sent until it is
    accepted.
    """
    tenant = load.tenants[0]
    tenant.upload()
    sent: dict[str, bytes] = {}
    for _ in range(count):
        query = load.query(tenant)
        sent[tenant.submit(query)] = query
        time.sleep(load.rng.random() * 3.0)
        load.service.kill()
        load.service.start()
        again = load.rng.choice(list(sent))
        assert tenant.submit(sent[again]) == again, "one query became two jobs"
    load.wait([(tenant, job) for job in sent])
    known = tenant.link.get(address("jobs"), list[Any])
    ours = [one for one in known if one["id"] in sent]
    return {
        "kills": count, "accepted": len(sent), "answered": len(ours),
        "right": sum(load.right(tenant, job) for job in sent),
    }  # fmt: skip


def cuts(load: Load, count: int = 20) -> dict[str, Any]:
    """An upload during which the service is killed at random points; the client goes on."""
    tenant, done = load.tenants[-1], threading.Event()
    for one in tenant.link.get(address("config"), dict[str, Any])["keys"]:
        tenant.link.fetch("DELETE", address("keys", one["id"]), limit=100)
    tries = 0

    def upload() -> None:
        nonlocal tries
        while tries < 2 * count and not done.is_set():
            tries += 1
            try:
                tenant.upload()
                done.set()
            except atlasc.AtlasError:  # it was away for longer than a client waits
                continue

    begun, made = time.monotonic(), 0
    thread = threading.Thread(target=upload)
    thread.start()
    while not done.is_set() and made < count:
        time.sleep(load.rng.random())
        if not done.is_set():
            load.service.kill()
            load.service.start()
            made += 1
    thread.join()
    seconds = time.monotonic() - begun
    job = tenant.submit(load.query(tenant))
    load.wait([(tenant, job)])
    usable = load.right(tenant, job)
    return {"kills": made, "runs_of_the_client": tries, "seconds": seconds, "usable": usable}


def memory(load: Load, count: int = 100) -> dict[str, Any]:
    """Greatest memory while jobs are queued and answered."""
    tenant = load.tenants[0]
    tenant.upload()
    most: dict[str, int] = {}
    idle = load.service.processes()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for name, size in load.service.processes().items():
                most[name] = max(size, most.get(name, 0))

    thread = threading.Thread(target=watch)
    thread.start()
    query = [(tenant, tenant.submit(load.query(tenant))) for _ in range(count)]
    load.wait(query)
    ended.set()
    thread.join()
    return {
        "jobs": count, "idle_MiB": {name: size / 2**20 for name, size in idle.items()},
        "most_MiB": {name: size / 2**20 for name, size in most.items()},
    }  # fmt: skip


def main() -> None:
    """Run the parts, and print what they found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--jobs", type=int, default=100, help="jobs of the part memory")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    asked = options.parts.split(",")
    with TemporaryDirectory() as scratch, ExitStack() as stack:
        if "ray" in asked:
            asked.remove("ray")
            folder = Path(scratch) / "ray"
            folder.mkdir()
            found["ray"] = compare(options.bundle, options.inputs, folder)
            print(json.dumps({"ray": found["ray"]}), flush=True)
        if asked:
            load = Load(options.bundle, options.inputs, Path(scratch), 3)
            stack.callback(load.service.kill)
        for part in asked:
            run = {"status": status, "jobs": jobs, "kills": kills, "cuts": cuts}
            before = os.getloadavg()[0]
            found[part] = memory(load, options.jobs) if part == "memory" else run[part](load)
            found[part]["load_average_before"] = before
            print(json.dumps({part: found[part]}), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
