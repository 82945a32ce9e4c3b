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

from atlasc.cli.output import print_table
from atlasc.cli.progress import progress
from benchmarks.engine.__main__ import measured
from benchmarks.peers.layer import minilm

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
            times = (value / min(values) for value in values)
            cells = [f"{cell} ({by:.2f} ×)" for cell, by in zip(cells, times)]
        rows.append([name, *cells])
    print_table(["", *found], rows, title="One encoder layer of MiniLM")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def run(name: str, recipe: str, tokens: int) -> dict[str, float]:
    """What one run of the layer takes on a target."""
    from atlasc.client.program import client_program
    from atlasc.compilation.lowering import lower_module
    from atlasc.compilation.options import TargetOptions
    from atlasc.ir.interpreter import interpret
    from atlasc.passes.costs import program_costs
    from atlasc.run import session
    from atlasc.targets import find_target

    layer, target = minilm(tokens, recipe, {}, progress), find_target(name)
    assert layer.inputs is not None
    lowered = lower_module(layer.module, layer.inputs, TargetOptions(target=name), fastest=True)
    client = client_program(lowered.client, lowered.program)
    with progress(f"{name}: keys") as step:
        started = time.perf_counter()
        engine = target.make_engine(lowered.program, lowered.parameters, step.report)  # type: ignore[arg-type]
        keys = time.perf_counter() - started
    query = client.query({key: array[:1] for key, array in layer.inputs.items()})
    encrypted = session.encrypt_all(engine, query)
    with progress(f"{name}: the layer"):
        started, cores = time.perf_counter(), time.process_time()
        outputs = session.execute(engine, lowered.program, encrypted, query.public)
        seconds, cores = time.perf_counter() - started, time.process_time() - cores
    (hidden,) = client.unpack(session.decrypt_all(engine, outputs), 1).values()
    (expected,) = interpret(layer.unfolded(), layer.encrypted()).values()
    kept = layer.inputs["attention_mask"][0].astype(bool)
    return {
        "bootstraps": program_costs(lowered.program).total.bootstraps,
        "keys": keys,
        "seconds": seconds,
        "core seconds": cores,
        "greatest error": float(np.abs(hidden[0] - expected[0])[kept].max()),
    }


if __name__ == "__main__":
    main()
