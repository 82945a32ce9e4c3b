"""Predicted against measured seconds of an encrypted run: of the whole, of each kind of op, and of
each primitive.

    python benchmarks/predicted.py                           16 images of examples/digits_vit
    python benchmarks/predicted.py BUNDLE --input FILE       anything that atlasc compile wrote
    [--costs TABLE] [--runs 1] [--json FILE]

Run it on a machine that does nothing else, whose primitives are those of the table: after
`atlasc calibrate-backend`, that is. What lies in no call of the engine is the time in which kernels
make plaintexts and the like.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atlasc.api.progress import progress
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_table
from atlasc.cli.results import show_timing
from atlasc.client.program import encrypt_all
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.program.counting_engine import Counted, CountingEngine
from atlasc.program.execute import execute
from atlasc.run.timing import Course, Pace
from atlasc.targets import find_target
from atlasc.targets.cost_table import VARIABLE
from atlasc.targets.costs import measured_costs
from atlasc.targets.machine import OtherWork

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits_vit"
PRIMITIVES = (
    "add", "sub", "negate", "add_plain", "mul", "square", "dot", "mul_plain", "times_i",
    "conjugate", "rotate", "rotate_many", "transform", "drop_to", "bootstrap", "bootstrap_many",
    "encrypt",
)  # fmt: skip


class Both(NamedTuple):
    """A ciphertext and its counted twin."""

    real: Any
    counted: Counted


class TimedEngine:
    """An engine that times each of its calls and costs it as the counting engine counts it.

    Attributes:
        calls: by name of the call: how often, predicted seconds, measured seconds.
    """

    def __init__(self, engine: Any, costs: Mapping[Any, float]) -> None:
        self._engine, self._costs = engine, costs
        self.slots, self.max_level = engine.slots, engine.max_level
        self.bootstrap_level = engine.bootstrap_level
        self.bootstrap_batch = engine.bootstrap_batch
        self._counter = CountingEngine(
            engine.slots, engine.max_level, engine.bootstrap_level, engine.bootstrap_batch
        )
        self.calls: dict[str, list[float]] = {}

    def level(self, ciphertext: Both) -> int:
        """Multiplications that are left."""
        return ciphertext.counted.level

    def decrypt(self, ciphertext: Both) -> Any:
        """The slots."""
        return self._engine.decrypt(ciphertext.real)

    def __getattr__(self, name: str) -> Any:
        if name not in PRIMITIVES:
            raise AttributeError(name)
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name: str, arguments: Sequence[Any]) -> Any:
        self._counter.counts.pop(name, None)
        self._counter.scope = name
        counted = getattr(self._counter, name)(*(_side(a, 1) for a in arguments))
        predicted = self._counter.counts[name].seconds(self._costs)
        inputs = [_side(a, 0) for a in arguments]
        started = time.perf_counter()
        real = getattr(self._engine, name)(*inputs)
        measured = time.perf_counter() - started
        row = self.calls.setdefault(name, [0, 0.0, 0.0])
        for place, value in enumerate((1, predicted, measured)):
            row[place] += value
        if isinstance(real, list):
            return [Both(*pair) for pair in zip(real, counted, strict=True)]
        return Both(real, counted)


def _side(argument: Any, side: int) -> Any:
    """One half of a ciphertext, or of those in a list; all else as it is."""
    if isinstance(argument, Both):
        return argument[side]
    if isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], Both):
        return [one[side] for one in argument]
    return argument


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", nargs="?", type=Path)
    parser.add_argument("--input", type=Path, default=DIGITS / "test.npz")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--costs", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.costs is not None:
        os.environ[VARIABLE] = str(arguments.costs)
    if warning := find_target("desilo").cost_warning():
        print(warning)
    if arguments.bundle is not None:
        found = compare(load_bundle(arguments.bundle), arguments.input, arguments.runs)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            found = compare(digits(Path(scratch) / "digits"), arguments.input, arguments.runs)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def digits(folder: Path) -> Bundle:
    """The Vision Transformer of `make demo`, with its settings."""
    options = CompileOptions(
        target="desilo", batch=16, cost="levels", space="paper", softmax_ranges="measured"
    )
    data = DIGITS / "calibration.npz"
    return compile_model(str(DIGITS / "model"), data, folder, options, progress)[0]


def compare(bundle: Bundle, data: Path, runs: int) -> dict[str, Any]:
    """Run a bundle on ciphertexts; print and return predicted and measured seconds."""
    parameters = bundle.parameters
    inputs = bundle.load_inputs(data).take(range(bundle.client.batch))
    with progress("generating keys") as step:
        engine = find_target("desilo").make_engine(bundle.program, parameters, step.report)
    timed = TimedEngine(engine, measured_costs(parameters))
    packed = bundle.client.query(inputs.arrays)
    others = OtherWork()
    with progress("running on ciphertexts", total=100) as step:
        pace = Pace(
            Course.of(bundle.program, bundle.parameters), find_target("desilo"), runs, step.report
        )
        for _ in range(runs):
            encrypted = encrypt_all(timed, packed)  # type: ignore[arg-type]
            execute(timed, bundle.program, encrypted, packed.public, pace)  # type: ignore[arg-type]
            pace.finish()
    timing = pace.timing()
    assert timing is not None
    show_timing(timing)
    calls = {name: [value / runs for value in row] for name, row in timed.calls.items()}
    show_calls(calls, timing.summary()["measured"])
    share = others.share()
    if share is not None:
        print(f"other work took {share:.0%} of the machine meanwhile")
    return {
        **timing.summary(),
        "parameters": parameters.to_dict(),
        "calls": {
            name: {"calls": count, "predicted": predicted, "measured": measured}
            for name, (count, predicted, measured) in calls.items()
        },
        "other_work": share,
    }


def show_calls(calls: Mapping[str, Sequence[float]], whole: float) -> None:
    """Print a row for each call of the engine, and what is left of the whole."""
    rows = [
        (name, int(count), predicted, measured, predicted / measured if measured else None)
        for name, (count, predicted, measured) in sorted(calls.items(), key=lambda c: -c[1][2])
    ]
    print_table(("call", "times", "predicted s", "measured s", "predicted / measured"), rows)
    inside = sum(measured for name, (_, _, measured) in calls.items() if name != "encrypt")
    print(f"{whole - inside:.3g} s of {whole:.4g} s lie in no call of the engine")


if __name__ == "__main__":
    main()
