"""Where the seconds of a bootstrap on ``cuda`` go: counted launches of each stage, at the seconds
of a model of an H200, by what the launches do.

    python -m benchmarks.engine.bootstrap_stages [--folder build/gpu] [--by-kernel]

The stand-in of a GPU counts the launches of each stage (docs/gpu.md), and the model is that of
the shipped prices (`benchmarks.engine.scaled_costs`). Nothing is measured. The row
``start`` is what the model has of a bootstrap beside its launches.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from atlasc.cli.output import print_table
from benchmarks.engine.kernel_seconds import Launch, Model, kind_of, recorded
from benchmarks.engine.scaled_costs import Counted, counted
from benchmarks.gpu.building import build, place_of
from benchmarks.gpu.bundles import parameter_set
from benchmarks.gpu.machine import EMULATED

PARTS = {
    "latency": "latency", "forwards": "forwards", "backwards": "backwards",
    "conversions products": "conversions", "pass products": "divisions",
    "pass bytes": "their bytes", "conversions bytes": "their bytes",
    "rows bytes": "keys", "rows of sums bytes": "keys", "keys bytes": "keys", "sums bytes": "keys",
    "tiles bytes": "rotated", "tiles rotated": "rotated", "tiles gathered": "rotated",
    "rest bytes": "other bytes",
}  # fmt: skip
"""A count, of a kind of kernel or of all, -> its column."""
EVALMOD = "EvalMod"


def parts_of(launch: Launch, model: Model) -> Counter[str]:
    """Seconds of launches that are alike by column, the gaps before them among ``latency``."""
    kind, found = kind_of(launch.kernel), Counter({"latency": launch.times * model.gap})
    counts = {"latency": 1.0, **launch._asdict()}
    for name, each in model.kinds[kind].items():
        column = PARTS[name] if name in PARTS else PARTS[f"{kind} {name}"]
        found[column] += launch.times * each * counts[name]
    return found


def by_stage(counts: dict[str, Counted], name: str) -> dict[str, list[Launch]]:
    """Stage -> its launches, of a bootstrap."""
    return {
        stage.removeprefix(f"{name} "): one.launches
        for stage, one in counts.items()
        if stage.startswith(f"{name} ")
    }


def show(name: str, stages: dict[str, list[Launch]], model: Model) -> None:
    """The table of a bootstrap in milliseconds, and how much of it is outside EvalMod."""
    columns = list(dict.fromkeys(PARTS.values()))
    rows, all_parts, all_launches, inside = [], Counter[str](), 0, 0.0
    for stage, launches in stages.items():
        parts, times = Counter[str](), sum(one.times for one in launches)
        for launch in launches:
            parts.update(parts_of(launch, model))
        rows.append(row(stage, times, parts, columns))
        all_parts.update(parts)
        all_launches += times
        inside += sum(parts.values()) if stage == EVALMOD else 0.0
    rows.append(["start", "", f"{model.start * 1e3:.2f}", *[""] * len(columns)])
    total = sum(all_parts.values())
    rows.append(row("all launches", all_launches, all_parts, columns))
    print_table([name, "launches", "ms", *columns], rows)
    print(
        f"{name}: {(total + model.start) * 1e3:.1f} ms, of which {EVALMOD} is {inside * 1e3:.1f}, "
        f"and {(total - inside) * 1e3:.1f} are launches outside it\n"
    )


def row(title: str, times: int, parts: Counter[str], columns: list[str]) -> list[str]:
    """A row of the table."""
    cells = [f"{parts[column] * 1e3:.2f}" for column in columns]
    return [title, str(times), f"{sum(parts.values()) * 1e3:.2f}", *cells]


def show_kernels(stages: dict[str, list[Launch]], model: Model) -> None:
    """Each launch of each stage, in microseconds."""
    for stage, launches in stages.items():
        for one in sorted(launches, key=lambda one: -one.times * model.of(one)):
            each = 1e6 * (model.of(one) + model.gap)
            print(
                f"{stage:12} {one.times:3} x {each:6.0f} us, {one.blocks:6} blocks, "
                f"{one.bytes / 1e6:7.1f} MB  {one.kernel}"
            )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine.bootstrap_stages", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path("build/gpu"), help="for builds")
    parser.add_argument("--by-kernel", action="store_true", help="print each launch besides")
    given = parser.parse_args()
    build("cuda", EMULATED, given.folder)
    launches = place_of("cuda", EMULATED, given.folder) / "launches"
    counts = counted(launches, "stages", parameter_set(given.folder / "bundles", 16))
    model = recorded().today()
    for kind in ("two", "one", "narrow_one", "narrow_two"):
        name = f"bootstrap_{kind}"
        stages = by_stage(counts, name)
        show(name, stages, model)
        if given.by_kernel:
            show_kernels(stages, model)


if __name__ == "__main__":
    main()
