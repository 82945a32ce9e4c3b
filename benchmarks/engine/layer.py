"""MiniLM's first layer on ciphertexts, on one target after another, each in a process of its own.

    python -m benchmarks.engine.layer [--targets cpu,desilo] [--recipe is] [--tokens 64]
                                      [--json FILE]

The same polynomials for both; parameters, levels and bootstraps are those that each target has.
``desilo`` takes 17 GB and minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.cli.output import print_table
from atlasc.targets import find_target
from benchmarks.engine.__main__ import compared, measured
from benchmarks.peers.layer import minilm
from benchmarks.peers.programs import OurProgram

ROWS = {
    "bootstraps": "{:.0f}",
    "keys": "{:.1f} s",
    "seconds": "{:.1f} s",
    "core seconds": "{:.1f} s",
    "greatest error": "{:.1e}",
    "memory": "{:.1f} GiB",
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--targets", default="cpu,desilo")
    parser.add_argument("--recipe", default="is")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.only is not None:
        print(json.dumps(run(options.only, options.recipe, options.tokens)))
        return
    found: dict[str, dict[str, Any]] = {}
    for target in options.targets.split(","):
        words = ["-m", "benchmarks.engine.layer", "--only", target, "--recipe", options.recipe]
        found[target] = measured([sys.executable, *words, "--tokens", str(options.tokens)])
    rows = []
    for name, form in ROWS.items():
        values = [one[name] for one in found.values()]
        cells = [form.format(value) for value in values]
        if name in ("seconds", "core seconds"):
            cells = compared(cells, values)
        rows.append([name, *cells])
    print_table(["", *found], rows, title="One encoder layer of MiniLM")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def run(name: str, recipe: str, tokens: int) -> dict[str, float]:
    """What one run of the layer takes on a target, encryption and decryption included."""
    program = OurProgram(minilm(tokens, recipe, {}, progress), target=name)
    assert program.layer.inputs is not None
    with progress(f"{name}: keys") as step:
        started = time.perf_counter()
        engine = find_target(name).make_engine(program.program, program.parameters, step.report)
        keys = time.perf_counter() - started
    with progress(f"{name}: the layer"):
        started, cores = time.perf_counter(), time.process_time()
        hidden = program.run(engine, lambda op: None)
        seconds, cores = time.perf_counter() - started, time.process_time() - cores
    kept = program.layer.inputs["attention_mask"][0].astype(bool)
    return {
        "bootstraps": program.counts.bootstraps,
        "keys": keys,
        "seconds": seconds,
        "core seconds": cores,
        "greatest error": float(np.abs(hidden - program.expected)[kept].max()),
    }


if __name__ == "__main__":
    main()
