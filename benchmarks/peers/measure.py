"""Encrypted runs of several programs of a layer in one process, one after the other."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.module import Op
from atlasc.program.engine import Engine
from atlasc.program.key_plan import KeyPlan
from atlasc_comparisons.desilo.engine import DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet
from atlasc_comparisons.desilo.library import library_engine
from benchmarks.peers.programs import Program

EngineFor = Callable[[Program], Engine[Any]]


def run_all(programs: Sequence[Program], results: Path, engine_for: EngineFor) -> dict[str, Any]:
    """Run the programs that ``results`` does not hold yet, by name."""

    def run(program: Program) -> dict[str, Any]:
        return measure(program, engine_for(program))

    return {
        program.name: kept(results, program.name, partial(run, program)) for program in programs
    }


def kept(results: Path, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The entry of a file of results; made, and written at once, where it is not there yet."""
    done = json.loads(results.read_text()) if results.exists() else {}
    if name not in done:
        done[name] = make()
        draft = results.with_suffix(".draft")
        draft.write_text(json.dumps(done, indent=1) + "\n")
        draft.replace(results)
    return done[name]


def measure(program: Program, engine: Engine[Any]) -> dict[str, Any]:
    """Seconds (of the clock, and of all cores), seconds by kind of op, the worst error against the
    polynomials, and peak memory.
    """
    reset_peak_memory()
    seconds: Counter[str] = Counter()
    started = last = time.perf_counter()
    processor = time.process_time()
    running = "start"
    position = 0

    def before(op: Op) -> None:
        nonlocal last, running, position
        now = time.perf_counter()
        seconds[running] += now - last
        last, running, position = now, op.name, position + 1
        say(f"{program.name}: {now - started:7.0f} s, {position}/{program.ops} {op.name}")

    hidden = program.run(engine, before)
    finished, spent = time.perf_counter(), time.process_time() - processor
    seconds[running] += finished - last
    return {
        "seconds": finished - started,
        "processor_seconds": spent,
        "predicted": program.seconds,
        "error": float(np.abs(hidden - program.expected).max()),
        "largest": float(np.abs(program.expected).max()),
        "peak_memory": peak_memory(),
        "bootstraps": program.counts.bootstraps,
        "seconds_by_op": dict(seconds.most_common()),
    }


def desilo_engines(programs: Sequence[Program]) -> EngineFor:
    """Engines on one key set, of which only the rotation keys are exchanged between programs."""
    keys: KeySet | None = None

    def engine_for(program: Program) -> DesiloEngine:
        nonlocal keys
        if keys is None:
            plans = [other.plan for other in programs]
            plan = KeyPlan(
                program.plan.rotations,
                _highest(plan.relinearization_level for plan in plans),
                _highest(plan.conjugation_level for plan in plans),
            )
            keys = KeySet.generate(
                program.parameters,
                plan,
                lambda what, index, count: say(f"{what} ({index}/{count})"),
            )
        else:
            exchange_rotations(keys, program.plan.rotations)
        return DesiloEngine(keys)

    return engine_for


def exchange_rotations(keys: KeySet, rotations: dict[int, int]) -> None:
    """Replace the rotation keys of a key set: the others are far larger, and stay."""
    engine = library_engine(keys.parameters)
    assert keys.plan is not None
    for amount in keys.plan.rotations:
        del keys.keys[f"rotation_{amount}"]
    keys.plan = replace(keys.plan, rotations=dict(rotations))
    for index, (amount, level) in enumerate(rotations.items()):
        say(f"rotation key {amount} ({index}/{len(rotations)})")
        right = keys.parameters.slots - amount  # the library rotates to the right
        key = engine.create_fixed_rotation_key(keys.secret, right, level)
        keys.keys[f"rotation_{amount}"] = key


def _highest(levels: Any) -> int | None:
    return max((level for level in levels if level is not None), default=None)


def reset_peak_memory() -> None:
    """Start ``peak_memory`` anew from what the process holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Bytes: the most that this process has held at once since the last reset."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) << 10


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)
