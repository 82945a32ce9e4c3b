"""What a client sends if its server derives rotation keys, and how long the server takes.

    python -m benchmarks.engine.derived_keys BUNDLE...
    python -m benchmarks.engine.derived_keys --bert-base --rounds 2

It plans the keys of a program with and without a derivation. With ``--rounds`` it makes both kinds
in a temporary folder, and reads them as a server does, by turns: the second kind takes what the
derivation takes, less what it need not read. BERT-base's shape needs 7 GB of disk and 10 GB of
memory.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.sent import sent_by
from atlasc.calibration.calibrate import nominal_calibration
from atlasc.cli.output import print_table
from atlasc.compilation.lowering import derived_keys
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.ckks.parameters import CkksParameters
from benchmarks.lowering import bert, in_packing


def bert_base() -> tuple[Module, CkksParameters]:
    """One layer of BERT-base's shape under nominal ranges: more layers need no more keys."""
    module = bert(1, 128)
    approximated = apply_recipe(module, "is", nominal_calibration(module))
    program, parameters = in_packing(approximated, LatencyTarget.of(find_target("cpu")), True)
    assert isinstance(parameters, CkksParameters)
    return program, parameters


def programs_of(
    name: str, program: Module, parameters: CkksParameters
) -> list[tuple[str, Module, CkksParameters]]:
    """A program whose keys are all sent, and one whose server derives some, if that saves bytes."""
    found, derived = [(name, program, parameters)], derived_keys(program, parameters)
    if key_plan(derived).derivation.roots:
        found.append((f"{name}, derived", derived, parameters))
    return found


def row(name: str, program: Module, parameters: CkksParameters) -> list[str]:
    """One line of the table, without seconds."""
    plan, sent = key_plan(program), sent_by(program, parameters, "cpu", None)
    assert sent is not None
    every = parameters.needs.with_plan(plan)
    of = every.derivation
    amounts = set(of.roots.values())
    figures = [len(every.rotations), len(of.roots), len(amounts), max(_hops(every, parameters))]
    root = parameters.roots[of.level].bytes / 2e6 if amounts else 0.0
    return [name, *map(str, figures), f"{root:.0f}", f"{sent.bytes.keys / 1e6:.0f}"]


def _hops(plan: KeyPlan, parameters: CkksParameters) -> list[int]:
    """The number of rotations that each derived key takes; 0 for one that is sent."""
    found = [0]
    for amount in plan.derivation.roots:
        hops, at = 0, amount
        while at in plan.derivation.roots:
            hops, at = hops + 1, (at - plan.derivation.roots[at]) % parameters.slots
        found.append(hops)
    return found


def seconds_to_read(program: Module, parameters: CkksParameters, folder: Path) -> tuple[float, ...]:
    """Seconds and core seconds that a server takes for keys that were made in a folder."""
    target, plan = find_target("cpu"), key_plan(program)
    if not folder.exists():
        for role in ("client", "server"):
            (folder / role).mkdir(parents=True)
        target.generate_keys(parameters, plan, folder, no_progress)
    started = time.perf_counter(), time.process_time()
    engine = target.role_engine("server", folder / "server", parameters, plan)
    seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    del engine
    gc.collect()
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--bert-base", action="store_true", help="its shape, 128 tokens")
    parser.add_argument("--rounds", type=int, default=0, help="how often keys are read")
    given = parser.parse_args(arguments)
    found = programs_of("BERT-base's shape", *bert_base()) if given.bert_base else []
    for folder in given.bundles:
        bundle = load_bundle(folder)
        assert isinstance(bundle.parameters, CkksParameters), "keys of our own engines alone"
        found += programs_of(folder.name, bundle.program, bundle.parameters)
    rows = [row(*one) for one in found]
    with tempfile.TemporaryDirectory() as keys:
        for _ in range(given.rounds):
            for line, (name, program, parameters) in zip(rows, found, strict=True):
                wall, core = seconds_to_read(program, parameters, Path(keys) / name)
                line.append(f"{wall:.1f} ({core:.1f})")
    names = ["rotation keys", "derived", "roots", "hops", "MB a root", "MB sent"]
    print_table(["", *names, *["seconds to read (core)"] * given.rounds], rows)


if __name__ == "__main__":
    main()
