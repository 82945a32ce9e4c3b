"""Do compiled programs hold on inputs of other kinds and lengths than they were calibrated on?

    python -m benchmarks.fidelity [--source prose,all] [--space wide] [--cost levels] [--margin 0.1]
    python -m benchmarks.fidelity --texts 100 --inputs 8 --budget 150           # two minutes
    python -m benchmarks.fidelity --program build/minilm                        # one that exists

Compiles MiniLM on 400 inputs of a source (`sources.py`), or of all sources together. Then it takes
unseen inputs of every source and length, and prints for each:

    unsafe          the share that the verdict calls so; the next five columns are of the others
    error           of the polynomials: mean absolute, of the hidden states
    encrypted       of an encrypted run, simulated with the errors of bootstraps; worst: of a text
    1 - cosine      of the embedding of an encrypted run with HuggingFace's; largest: of a text
    not finite      safe ones whose answer is not finite
    beyond 1        safe ones with a value beyond the range that bootstraps are compiled for
    false safe      safe ones whose encrypted run errs by more than ten times what was promised
    false unsafe    unsafe ones whose encrypted run does not
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_json, print_table
from atlasc.polynomials.parametrisation import PRESETS
from atlasc.search.front import chart
from atlasc.search.points import COSTS
from benchmarks.fidelity import sources
from benchmarks.fidelity.measure import Measurer
from benchmarks.fidelity.sources import CALIBRATION, LENGTHS, SOURCES, TOKENS

ALL = "all"
INPUTS = 48
COLOURS = dict(zip(SOURCES, ("tab:blue", "tab:green", "tab:orange", "tab:purple", "tab:red")))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("--source", default="prose", help=f"to calibrate on: {', '.join(SOURCES)}, {ALL}")
    named("--length", choices=LENGTHS, default="full", help="of the inputs to calibrate on")
    named("--texts", type=int, default=CALIBRATION, help="inputs to calibrate on")
    named("--on", default=",".join(SOURCES), help="sources of the unseen inputs")
    named("--lengths", default=",".join(LENGTHS), help="of the unseen inputs")
    named("--inputs", type=int, default=INPUTS, help="unseen inputs of each source and length")
    named("--space", choices=PRESETS, help="of the search [default: the compiler's]")
    named("--cost", choices=COSTS, help="that is searched for [default: the compiler's]")
    named("--margin", type=float, help="of the ranges [default: the compiler's]")
    named("--error", type=float, help="greatest error to pick [default: the compiler's]")
    named("--recipe", help="named settings instead of a search")
    named("--budget", type=int, help="evaluations of the search [default: the compiler's]")
    named("--program", type=Path, help="a compiled MiniLM of 64 tokens, instead of compiling")
    named("--plot", type=Path, help="write a PNG")
    named("--json", action="store_true", help="print JSON, with the figures of every input")
    chosen = parser.parse_args()
    results = [measured(label, bundle, chosen) for label, bundle in programs(chosen)]
    if chosen.json:
        print_json({"options": {k: str(v) for k, v in vars(chosen).items()}, "programs": results})
    if chosen.plot:
        plot(results, chosen.plot)


def programs(chosen: argparse.Namespace) -> Iterator[tuple[str, Bundle]]:
    """Programs to measure, each with what it was calibrated on."""
    if chosen.program is not None:
        yield chosen.program.name, load_bundle(chosen.program)
        return
    for source in chosen.source.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            yield source, compiled(source, Path(scratch) / "program", chosen)


def compiled(source: str, place: Path, chosen: argparse.Namespace) -> Bundle:
    """MiniLM, calibrated on a source."""
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.options import CompileOptions

    data = calibration(source, chosen.length, chosen.texts)
    options = CompileOptions(
        sequence_length=TOKENS,
        target="sim",
        margin=chosen.margin,
        max_error=chosen.error,
        recipe=chosen.recipe,
        space=chosen.space,
        cost=chosen.cost,
        evaluations=chosen.budget,
    )
    print(f"calibrating on {len(data)} inputs: {source}, {chosen.length}", file=sys.stderr)
    model = str(sources.texts.model_directory())
    return compile_model(model, data, place, options, progress).bundle


def calibration(source: str, length: str, count: int) -> list[list[int]]:
    """Token ids of a source, or as many of each source as of another."""
    named = SOURCES if source == ALL else (source,)
    shares = np.full(len(named), count // len(named)) + (np.arange(len(named)) < count % len(named))
    parts = (
        sources.rows(each, length, int(share)) for each, share in zip(named, shares, strict=True)
    )
    tokenizer = sources.texts.load_tokenizer()
    return [
        tokenizer.encode(row).ids if isinstance(row, str) else row
        for row in chain.from_iterable(parts)
    ]


def measured(label: str, bundle: Bundle, chosen: argparse.Namespace) -> dict[str, Any]:
    """Figures of a program on all sources and lengths; prints a table of them."""
    measurer, cells = Measurer(bundle, sources.texts.model_directory()), []
    limit, skip = measurer.limit, max(CALIBRATION, chosen.texts)
    kinds = list(product(chosen.on.split(","), chosen.lengths.split(",")))
    with progress("measuring", len(kinds) * chosen.inputs) as step:
        for source, length in kinds:
            rows = sources.rows(source, length, chosen.inputs, skip=skip)
            found = measurer.measure(rows, partial(step, note=f"{source}, {length}"))
            each = found.to_dict()
            cells.append({"source": source, "length": length, **found.summary(limit), "each": each})
    facts, costs = bundle.manifest.settings, bundle.manifest.costs
    program = {
        "calibrated on": label,
        "levels": costs["levels"],
        "bootstraps": costs["bootstraps"],
        "promised error": facts["error"],
        "limit": limit,
    }
    if not chosen.json:
        table(program, cells)
    return {**program, "cells": cells}


def table(program: dict[str, Any], cells: Sequence[dict[str, Any]]) -> None:
    """Print the cells of a program, and their sums."""
    names = [name for name in cells[0] if name != "each"]
    print_table(
        names,
        [[cell[name] for name in names] for cell in cells],
        title=f"calibrated on {program['calibrated on']}: {program['levels']} levels, "
        f"{program['bootstraps']} bootstraps, promised error {program['promised error']:.2g}, "
        f"wrong beyond {program['limit']:.2g}",
    )
    inputs = sum(cell["inputs"] for cell in cells)
    unsafe = sum(cell["unsafe"] * cell["inputs"] for cell in cells)
    wrong = {
        n: sum(cell[n] for cell in cells)
        for n in ("not finite", "beyond 1", "false safe", "false unsafe")
    }
    print(f"all: {inputs} inputs, {unsafe / inputs:.1%} unsafe, " + ", ".join(
        f"{count} {name}" for name, count in wrong.items()))  # fmt: skip


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a PNG: for each program, the error of an encrypted run over the distance outside ranges
    of each input; a filled mark is one that the verdict calls safe. At last the unsafe shares.
    """
    with chart(path, len(results) + 1) as (*panels, shares):
        for axes, program in zip(panels, results, strict=True):
            for cell in program["cells"]:
                each = {name: np.array(values) for name, values in cell["each"].items()}
                scatter(axes, each, COLOURS[cell["source"]])
            axes.axhline(program["limit"], color="black", linestyle="--", linewidth=0.8)
            axes.set(
                title=f"calibrated on {program['calibrated on']}, {program['levels']} levels",
                xlabel="furthest outside a range, share of its width",
                ylabel="mean error of an encrypted run",
            )
            axes.set_xscale("symlog", linthresh=1e-3)
            axes.set_xlim(left=-2e-4)
            axes.set_yscale("log")
            for source in dict.fromkeys(cell["source"] for cell in program["cells"]):
                axes.scatter([], [], s=12, color=COLOURS[source], label=source)
            axes.legend(fontsize=7)
        labels = [f"{c['source']}, {c['length']}" for c in results[0]["cells"]]
        height = 0.8 / len(results)
        for number, program in enumerate(results):
            at = np.arange(len(labels)) + number * height
            unsafe = [cell["unsafe"] for cell in program["cells"]]
            shares.barh(at, unsafe, height, label=f"calibrated on {program['calibrated on']}")
        shares.set_yticks(np.arange(len(labels)) + 0.4 - height / 2, labels, fontsize=7)
        shares.invert_yaxis()
        shares.set(xlabel="share called unsafe", xlim=(0, 1))
        shares.legend(fontsize=7)


def scatter(axes: Any, each: dict[str, np.ndarray], colour: str) -> None:
    """Inputs of a cell; those that are not finite stand at the upper edge."""
    top = 1e2
    error, at = np.minimum(each["noisy_error"], top), np.minimum(each["outside"], top)
    for safe in (True, False):
        chosen = each["safe"] == safe
        face = colour if safe else "none"
        axes.scatter(at[chosen], error[chosen], s=12, facecolors=face, edgecolors=colour)


if __name__ == "__main__":
    main()
