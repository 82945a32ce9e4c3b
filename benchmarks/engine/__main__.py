"""Seconds of a bootstrap and of primitives on the engine ``cpu``, beside other
libraries, in one run.

    make bench-engine                                  minutes, and 17 GB at a time
    python -m benchmarks.engine [--sets fifteen_levels_40,fourteen_levels] [--rounds 3]
                                [--no-desilo] [--lattigo PYTHON] [--openfhe PYTHON]
                                [--json FILE]

One process after another, each with all processors, at N = 2^16 and 128 bits of security. Slots are
uniform in [-1, 1]. A bootstrap of cpu and desilofhe refreshes two real ciphertexts as the parts of
a complex one; those of Lattigo, as Orion calls it, and OpenFHE one. PYTHON is that of an
environment with the library: for Lattigo, which comes with Orion, the one that `make bench-peers`
sets up, for OpenFHE the one of ``peer_bootstrap.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.cli.output import print_table
from atlasc.program.engine import Engine
from atlasc.program.key_plan import KeyPlan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import NARROWER

HERE = Path(__file__).parent
LOG_DEGREE = 16
ROWS = {
    "levels left": ("level", "{:.0f}"),
    "keys, s": ("keys", "{:.1f}"),
    "first bootstrap, s": ("first", "{:.2f}"),
    "bootstrap, s": ("bootstrap", "{:.2f}"),
    "bootstrap of one, s": ("one", "{:.2f}"),
    "bootstrap of slots that repeat 32 times, s": ("narrow", "{:.2f}"),
    "bootstrap, core s": ("cores", "{:.2f}"),
    "greatest error, log2": ("log2_error", "{:.1f}"),
    "product, ms": ("mul", "{:.1f}"),
    "rotation, ms": ("rotate", "{:.1f}"),
    "product with a vector, ms": ("mul_plain", "{:.1f}"),
    "memory, GiB": ("memory", "{:.1f}"),
}
TIMES = ("mul", "rotate", "mul_plain")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sets", default="fifteen_levels_40,fourteen_levels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-desilo", action="store_true")
    parser.add_argument("--only", metavar="ENGINE", help=argparse.SUPPRESS)
    parser.add_argument("--lattigo", type=Path, metavar="PYTHON")
    parser.add_argument("--openfhe", type=Path, metavar="PYTHON")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.only is not None:
        print(json.dumps(measured_here(options.only, options.rounds)))
        return
    found: dict[str, dict[str, Any]] = {}
    ours = [f"cpu, {name}" for name in options.sets.split(",")]
    for name in ours if options.no_desilo else [*ours, "desilo"]:
        with progress(name):
            words = ["-m", "benchmarks.engine", "--only", name, "--rounds", str(options.rounds)]
            found[name] = measured([sys.executable, *words])
    for name in ("Lattigo", "OpenFHE"):
        python = getattr(options, name.lower())
        if python is not None:
            with progress(name):
                words = [str(python), str(HERE / "peer_bootstrap.py"), name]
                words += ["--log-degree", str(LOG_DEGREE), "--rounds", str(options.rounds)]
                found[name] = measured(words)
    show(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def measured(command: list[str]) -> dict[str, Any]:
    """What a process of its own found, and its greatest memory."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return {**json.loads(text.strip().splitlines()[-1]), "memory": usage.ru_maxrss / 2**20}


def made(name: str) -> Engine[Any]:
    """An engine with keys of its own."""
    if name == "desilo":
        from atlasc_comparisons.desilo.engine import DesiloEngine
        from atlasc_comparisons.desilo.keys import KeySet
        from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED

        return DesiloEngine(KeySet.generate(BOOTSTRAPPED, KeyPlan({1: BOOTSTRAPPED.max_level})))
    parameters = CpuParameters.bootstrapped(name.removeprefix("cpu, "), LOG_DEGREE)
    return CpuEngine.fresh(parameters, KeyPlan({1: parameters.max_level}), no_progress)


def measured_here(name: str, rounds: int) -> dict[str, float]:
    """Seconds of an engine in this process."""
    start = time.perf_counter()
    engine = made(name)
    keys = time.perf_counter() - start

    def seconds(work: Callable[[], Any]) -> float:
        start = time.perf_counter()
        result = work()
        if isinstance(engine, CpuEngine):
            for one in result if isinstance(result, list) else [result]:
                engine.settle(one)  # what the engine puts off
        return time.perf_counter() - start

    slots = np.random.default_rng(1).uniform(-1, 1, engine.slots)
    pair = [engine.encrypt(slots, engine.bootstrap_from) for _ in range(2)]
    refreshed: list[Any] = []

    def refresh() -> list[Any]:
        refreshed[:] = engine.bootstrap_many(pair)
        return refreshed

    first = seconds(refresh)  # encodes the diagonals, too
    before = time.process_time()
    again = min(seconds(refresh) for _ in range(rounds))
    cores = (time.process_time() - before) / rounds
    seconds(lambda: engine.bootstrap_many(pair[:1]))
    one = min(seconds(lambda: engine.bootstrap_many(pair[:1])) for _ in range(rounds))
    repeated = np.tile(slots[: engine.slots >> NARROWER], 1 << NARROWER)
    few = [engine.encrypt(repeated, engine.bootstrap_from) for _ in range(2)]
    narrow = min(
        seconds(lambda: engine.bootstrap_many(few, engine.slots >> NARROWER)) for _ in range(rounds)
    )
    error = max(float(np.abs(engine.decrypt(one) - slots).max()) for one in refreshed)
    x, y = refreshed
    turns = count()
    work: dict[str, Callable[[], Any]] = {
        "mul": lambda: engine.mul(x, y),
        "rotate": lambda: engine.rotate(x, 1),
        # Another vector each time: an engine may keep those that it has seen.
        "mul_plain": lambda: engine.mul_plain(x, np.roll(slots, next(turns))),
    }
    times = {name: min(seconds(one) for _ in range(rounds)) for name, one in work.items()}
    return {
        "level": engine.level(x), "keys": keys, "first": first, "bootstrap": again, "cores": cores,
        "one": one, "narrow": narrow, "log2_error": float(np.log2(error)), **times,
    }  # fmt: skip


def compared(cells: list[str], values: list[float]) -> list[str]:
    """Cells, each with its value as a multiple of the least."""
    least = min(values)
    return [f"{cell} ({value / least:.2f} ×)" for cell, value in zip(cells, values)]


def show(found: dict[str, dict[str, Any]]) -> None:
    """The table, with what is slower than the fastest as a multiple of it."""
    rows = []
    for title, (entry, form) in ROWS.items():
        values = [one.get(entry) for one in found.values()]
        factor = 1e3 if entry in TIMES else 1.0
        cells = ["" if value is None else form.format(value * factor) for value in values]
        if entry in ("bootstrap", "cores", *TIMES) and None not in values:
            cells = compared(cells, values)
        rows.append([title, *cells])
    print_table(["", *found], rows)
    print(f"{os.cpu_count()} processors; levels are those of real products")


if __name__ == "__main__":
    main()
