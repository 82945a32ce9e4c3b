"""500 inputs through every limit at once, while service and client are killed: each answer once.

::

    python -m benchmarks.service.lost BUNDLE INPUTS [--count 500] [--kills 10] [--json FILE]

``BUNDLE`` may be of the target sim. The client is killed at random moments, and what it left is
fetched; inputs that were not sent are asked again. The service is killed at others.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import atlasc
from atlasc.service.store import Store
from atlasc.service.tokens import add_token
from benchmarks.service.party import Service

LIMITS = ("--rate", 20, "--queue", 8, "--tenant-queue", 4)
"""And the disk of the tenant: its keys, and four jobs."""
NOT_ALL = 3
"""Exit code of a client some of whose inputs have no answer."""


def asked(
    words: list[str], output: Path, due: Callable[[], bool] = lambda: False, tries: int = 5
) -> tuple[bool, np.ndarray | None]:
    """Run ``atlasc query`` until it ends, or is due to be killed; again where the service was just
    then down, at most ``tries`` times.

    Returns:
        Whether it was killed; and its outputs, None if it wrote none.

    Raises:
        RuntimeError: it ended by itself, and not as a client ends that lost nothing.
    """
    command = [sys.executable, "-m", "atlasc", *words, "-o", str(output)]
    told, killed = output.with_suffix(".log"), False
    with open(told, "w") as log:
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    while client.poll() is None:
        if due():
            client.kill()
            client.wait()
            killed = True
        time.sleep(0.1)
    if not killed and client.returncode not in (0, NOT_ALL):
        error = told.read_text()[-1000:]
        if tries > 1 and "cannot be reached" in error:
            time.sleep(1)
            return asked(words, output, due, tries - 1)
        raise RuntimeError(f"the client ended with {client.returncode}: {error}")
    if not output.exists():
        return killed, None
    with np.load(output) as file:
        found = np.array(next(iter(file.values())))
    output.unlink()
    return killed, found


class Moments:
    """When something is killed: once so many jobs have ended, so that no run ends before.

    Attributes:
        killed: how often it was.
    """

    def __init__(self, service: Service, rng: random.Random, jobs: int, kills: int) -> None:
        """Choose the moments; the last is before a fifth of the jobs is left."""
        self._service, self.killed = service, 0
        self._left = sorted(rng.sample(range(1, max(kills + 1, jobs * 4 // 5)), kills))

    def due(self) -> bool:
        """Whether the next moment has come; it has passed then."""
        if not self._left or len(ended(self._service)) < self._left[0]:
            return False
        del self._left[0]
        self.killed += 1
        return True


def ended(service: Service) -> list[str]:
    """The jobs that were done, each as often as it was."""
    return [
        line["job"]
        for line in service.log
        if line["event"] == "job ended" and line["state"] == "done"
    ]


def lost(bundle: Path, data: Path, count: int, kills: int, scratch: Path) -> dict[str, Any]:
    """Ask ``count`` inputs until each has its answer."""
    rng, program = random.Random(0), atlasc.load(bundle)
    with np.load(data) as file:
        arrays = {name: np.resize(file[name], (count, *file[name].shape[1:])) for name in file}
    inputs = scratch / "inputs.npz"
    np.savez(inputs, **arrays)  # type: ignore[arg-type]
    expected = next(iter(program.run(inputs).outputs.values()))
    key, query = _sizes(program, scratch)
    service = Service(bundle, scratch / "state", *LIMITS, "--quota", key + 4 * query)
    store = Store(service.state)
    token = scratch / "token"
    token.write_text(add_token(store, "acme"))
    token.chmod(0o600)
    store.close()
    base = ["query", service.url, "--token-file", str(token), "--folder", str(scratch / "client")]
    base.append("--allow-simulation")  # has no effect on a program that encrypts
    found: dict[int, np.ndarray] = {}
    jobs = -(-count // program.bundle.batch)
    clients, services = (Moments(service, rng, jobs, kills) for _ in range(2))
    over, runs, twice, began = threading.Event(), 0, 0, time.monotonic()

    def kill() -> None:
        while not over.wait(0.1):
            if services.due():
                service.kill()
                service.start()

    with ThreadPoolExecutor(1) as other:
        killing = other.submit(kill)
        try:
            while len(found) < count:
                left = [row for row in range(count) if row not in found]
                chosen = ["--input", str(inputs), "--index", ",".join(map(str, left))]
                killed, answers = asked([*base, *chosen], scratch / "out.npz", clients.due)
                if killed and answers is None:
                    _, answers = asked([*base, "--fetch"], scratch / "out.npz")
                runs += 1
                for row, numbers in zip(left, answers if answers is not None else (), strict=False):
                    if not np.isnan(numbers).any():
                        twice += row in found
                        found[row] = numbers
            over.set()
            killing.result()
        finally:
            over.set()
            service.kill()
    seconds, done = time.monotonic() - began, ended(service)
    wrong = [row for row in found if np.abs(found[row] - expected[row]).max() > 1e-3]
    return {
        "inputs": count, "answered": len(found), "wrong": len(wrong), "twice": twice,
        "runs": runs, "killed": {"client": clients.killed, "service": services.killed},
        "seconds": seconds,
        "jobs_done": len(done), "jobs_done_twice": len(done) - len(set(done)),
        "left_in_the_folder": len(list((scratch / "client" / "open").glob("*"))),
    }  # fmt: skip


def _sizes(program: Any, scratch: Path) -> tuple[int, int]:
    """Bytes of the keys and of a query."""
    atlasc.keygen(program, scratch / "keys")
    with np.load(scratch / "inputs.npz") as file:
        rows = {name: file[name][: program.bundle.batch] for name in file.files}
    query = atlasc.Client(program, scratch / "keys").encrypt(rows)
    return (scratch / "keys" / "server" / "evaluation.key").stat().st_size, len(query)


def main() -> None:
    """Run it, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.lost", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        found = lost(options.bundle, options.inputs, options.count, options.kills, Path(scratch))
    print(json.dumps(found))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
