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
from collections import Counter
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


def asked(words: list[str], output: Path, seconds: float | None) -> np.ndarray | None:
    """The outputs of ``atlasc query``, killed after some seconds; None if it wrote none."""
    command = [sys.executable, "-m", "atlasc", *words, "-o", str(output)]
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client.wait(seconds)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
    if not output.exists():
        return None
    with np.load(output) as file:
        found = np.array(next(iter(file.values())))
    output.unlink()
    return found


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
    ended, killed, runs = threading.Event(), Counter[str](), 0

    def kill() -> None:
        while killed["service"] < kills and not ended.wait(2 + 6 * rng.random()):
            service.kill()
            service.start()
            killed["service"] += 1

    thread = threading.Thread(target=kill)
    thread.start()
    began, twice = time.monotonic(), 0
    try:
        while len(found) < count:
            left = [row for row in range(count) if row not in found]
            chosen = ["--input", str(inputs), "--index", ",".join(map(str, left))]
            patience = 4 + 8 * rng.random() if killed["client"] < kills else None
            answers = asked([*base, *chosen], scratch / "out.npz", patience)
            if answers is None:
                killed["client"] += 1
                answers = asked([*base, "--fetch"], scratch / "out.npz", None)
            runs += 1
            for row, numbers in zip(left, answers if answers is not None else (), strict=False):
                if not np.isnan(numbers).any():
                    twice += row in found
                    found[row] = numbers
    finally:
        ended.set()
        thread.join()
    log = service.log
    service.kill()
    done = [line["job"] for line in log if line["event"] == "job ended" and line["state"] == "done"]
    wrong = [row for row in found if np.abs(found[row] - expected[row]).max() > 1e-3]
    return {
        "inputs": count, "answered": len(found), "wrong": len(wrong), "twice": twice,
        "runs": runs, "killed": dict(killed), "seconds": time.monotonic() - began,
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
