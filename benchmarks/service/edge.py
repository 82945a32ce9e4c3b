"""A service under each attack, and under all together, and prints what they cost.

::

    python -m benchmarks.service.edge BUNDLE INPUTS [--seconds 30] [--attacks NAME,...] [--json F]
    python -m benchmarks.service.edge BUNDLE INPUTS --attacks all --workers ray

For each: the milliseconds of health checks over new connections, the memory and the log that the
service gained, and how long the query of another tenant took.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from atlasc.service.store import Store
from atlasc.service.tokens import add_token
from benchmarks.service.attacks import ATTACKS
from benchmarks.service.party import Service, Tenant, resident

EACH = 0.05
"""Seconds between two health checks."""


@dataclass
class Costs:
    """What an attack costs.

    Attributes:
        checks, failed: health checks, and those without the answer 200.
        health_ms: 50 % and 99 % of them within, and the slowest.
        memory: most bytes beyond those before.
        log: bytes of the log.
        writes: of the attacks.
        processor: processors that the service used.
        query_seconds: of another tenant's query.
    """

    checks: int
    failed: int
    health_ms: dict[str, float]
    memory: int
    log: int
    writes: dict[str, int]
    processor: float
    query_seconds: float


@dataclass
class Health:
    """Checks a service until it is told to end."""

    port: int
    pid: int
    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    most: int = 0

    def check(self) -> None:
        """Check once."""
        started = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/v2/health/live")
            self.failed += connection.getresponse().status != 200
        except (OSError, http.client.HTTPException) as error:
            self.failed += 1
            print(repr(error), file=sys.stderr)
        finally:
            connection.close()
        self.seconds.append(time.monotonic() - started)
        self.most = max(self.most, resident(self.pid))

    def watch(self, ended: threading.Event) -> None:
        """Check until the end."""
        while not ended.wait(EACH):
            self.check()


def attacked(
    port: int,
    pid: int,
    log: Path,
    names: Sequence[str],
    seconds: float,
    token: str,
    configuration: str,
    query: Callable[[], object],
    nice: int = 19,
) -> Costs:
    """What attacks cost a service.

    Args:
        pid, log: of the service.
        names: of the attacks, which run at once.
        token, configuration: of the tenant that attacks.
        query: asks as another tenant, in the middle of the attacks.
        nice: by how much the attacks' processes give way on this machine's processors.
    """
    before, size = resident(pid), log.stat().st_size
    spent, begun = _processor_seconds(pid), time.monotonic()
    health, ended = Health(port, pid), threading.Event()
    watcher = threading.Thread(target=health.watch, args=(ended,))
    # Others attack from machines of their own: what they compute must not delay the service.
    words = ["nice", "-n", str(nice), sys.executable, "-m", "benchmarks.service.attacks"]
    attack = subprocess.Popen(
        [*words, ",".join(names), str(port), str(seconds), token, configuration],
        stdout=subprocess.PIPE,
        text=True,
    )

    def asked() -> float:
        started = time.monotonic()
        query()
        return time.monotonic() - started

    with ThreadPoolExecutor(1) as other:
        try:
            time.sleep(min(2.0, seconds / 4))  # the attacks have begun
            watcher.start()
            asking = other.submit(asked)
            writes: dict[str, int] = json.loads(attack.communicate(timeout=5 * seconds + 60)[0])
        finally:
            ended.set()  # a query may take longer than the attacks, and is not waited for here
            attack.kill()
            if watcher.ident:
                watcher.join()
        spent, took = _processor_seconds(pid) - spent, time.monotonic() - begun
        answered = asking.result()
    ms = 1e3 * np.quantile(health.seconds, [0.5, 0.99, 1.0])
    return Costs(
        len(health.seconds), health.failed, dict(zip(("p50", "p99", "max"), map(float, ms))),
        max(0, health.most - before), log.stat().st_size - size,
        writes, spent / took, answered,
    )  # fmt: skip


def _processor_seconds(pid: int) -> float:
    numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run the attacks, and print what they cost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.edge", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--attacks", default=",".join([*ATTACKS, "all"]))
    parser.add_argument("--workers", default="local", help="of the service: local or ray")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, object] = {}
    with TemporaryDirectory() as scratch:
        given = ("--demo", "--workers", options.workers)
        service = Service(options.bundle, Path(scratch) / "state", *given)
        try:
            service.ready()
            tenant = Tenant(service, "acme", Path(scratch))
            with np.load(options.inputs) as file:
                rows = {name: file[name][: tenant.program.batch] for name in file.files}
            tenant.upload()

            def query() -> None:
                job = tenant.submit(tenant.client.encrypt(rows))
                while tenant.status(job).state in ("queued", "running"):
                    time.sleep(0.2)
                tenant.client.decrypt(tenant.answer(job))

            query()
            for name in options.attacks.split(","):
                store = Store(service.state)
                token = add_token(store, f"attacker-{name}"[:60])
                store.close()
                names = [*ATTACKS] if name == "all" else [name]
                costs = attacked(
                    service.port, service.process.pid, service.log_path, names,
                    options.seconds, token, tenant.facts.configuration, query,
                )  # fmt: skip
                found[name] = {**asdict(costs), "load_average": os.getloadavg()[0]}
                print(json.dumps({name: found[name]}), flush=True)
        finally:
            service.stop()  # with all that Ray has started for it
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
