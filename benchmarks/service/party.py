"""A bundle, a service in a process of its own, and its tenants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import atlasc
from atlasc.progress import silent
from atlasc.remote.keys import own_keys, upload_keys
from atlasc.remote.link import Link, address
from atlasc.remote.wire import Config, JobStatus
from atlasc.service.store import Store
from atlasc.service.tokens import add_token

SECONDS = 600.0


class Service:
    """``atlasc serve``, which can be killed and started again at the same address."""

    def __init__(
        self, bundle: Path, state: Path, *options: object, path: Path | None = None
    ) -> None:
        """Start it; a folder ``path`` is searched for packages first."""
        self.bundle, self.state, self.options, self.port = bundle, state, options, 0
        places = filter(None, (path and str(path), os.environ.get("PYTHONPATH")))
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        self.start()

    def start(self) -> None:
        """Start, or start again."""
        words = ["serve", self.bundle, "--state", self.state, "--port", self.port, *self.options]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "atlasc", *map(str, words)],
                stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
            )  # fmt: skip
        assert self.process.stdout is not None
        told = self.process.stdout.readline().split()
        if not told:
            raise RuntimeError(f"the service did not start: {self.log_path.read_text()[-1000:]}")
        self.url = told[-1]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM."""
        self.process.terminate()
        self.process.wait()

    def ready(self, workers: int = 1) -> None:
        """Wait until so many workers compute: those of Ray come later than the address."""
        until = time.monotonic() + SECONDS
        while sum(line["event"] == "worker started" for line in self.log) < workers:
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no worker started: {self.log_path.read_text()[-1000:]}")
            time.sleep(0.2)

    @property
    def log_path(self) -> Path:
        """The file of its log."""
        return self.state.with_suffix(".log")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        lines = self.log_path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def processes(self) -> dict[str, int]:
        """Resident bytes of the service and of its worker."""
        found = {"service": self.process.pid}
        for threads in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            if children := threads.read_text().split():
                found["worker"] = int(children[0])
        return {name: resident(pid) for name, pid in found.items()}


def resident(pid: int) -> int:
    """Resident bytes of a process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


class Tenant:
    """A tenant with keys of its own, which the service has."""

    def __init__(self, service: Service, name: str, folder: Path) -> None:
        store = Store(service.state)
        self.token, self.name = add_token(store, name), name
        store.close()
        self.program = atlasc.load(service.bundle).bundle
        self.link = Link(service.url, self.token)
        self.config = self.link.get(address("config"), Config)
        self.facts = self.config.programs[0]
        self.keys = own_keys(self.program, self.facts, folder / name, silent)
        self.client = atlasc.Client(self.program, self.keys)

    def upload(self) -> str:
        """Upload the keys, from where the last upload stopped."""
        return upload_keys(self.link, self.config, self.facts, self.program, self.keys, silent)

    def submit(self, query: bytes) -> str:
        """Send a query; waits where the queue is full."""
        found = self.link.send("POST", address("jobs"), JobStatus, query, queue=SECONDS)
        return found.id

    def status(self, job: str) -> JobStatus:
        """State of a job."""
        return self.link.get(address("jobs", job), JobStatus)

    def answer(self, job: str) -> bytes:
        """The encrypted answer."""
        return self.link.fetch("GET", address("jobs", job, "answer"), limit=2**30)
