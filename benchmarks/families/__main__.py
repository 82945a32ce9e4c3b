"""Tiny random models of every family: how far each comes, and with which error.

python -m benchmarks.families                          traced and lowered, all families
python -m benchmarks.families --until trace gpt2 t5    two families, only traced
python -m benchmarks.families --until compile bert     compiled without options too: minutes
python -m benchmarks.families --further                59 further architectures, lowered
python -m benchmarks.families --base gpt2              the true shape of a base model, lowered

With --record, the figures go into docs/models.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict

from atlasc.cli.output import print_json, print_table
from benchmarks.families.base_shapes import lower
from benchmarks.families.further import FURTHER
from benchmarks.families.models import FAMILIES
from benchmarks.families.page import record
from benchmarks.families.stages import STAGES, Outcome, attempt


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.families", description=(__doc__ or "").splitlines()[0]
    )
    every = {**FAMILIES, **FURTHER}
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(every))
    parser.add_argument("--until", choices=STAGES, default="lower", help="the last stage")
    parser.add_argument("--further", action="store_true", help="the 59 further architectures")
    parser.add_argument("--base", action="store_true", help="true shapes instead of tiny models")
    parser.add_argument("--record", action="store_true", help="write the figures to docs/models.md")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.families) - set(every)):
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(every)}")
    names = chosen.families or list(FURTHER if chosen.further else FAMILIES)
    few = not FURTHER.keys().isdisjoint(names)
    if few and chosen.base:
        parser.error("--base is for the families of the first table")
    last = "lower" if few else STAGES[-1]
    if chosen.record and not chosen.base and chosen.until != last:
        parser.error(f"--record goes with --base or with --until {last}")
    if chosen.base:
        lower_shapes(names, chosen.record)
        return
    outcomes: dict[str, Outcome] = {}
    for name in names:
        started = time.perf_counter()
        outcomes[name] = attempt(every[name], chosen.until)
        if chosen.record:
            record("further" if name in FURTHER else "tiny", name, outcomes[name])
        if not chosen.json:
            reached = outcomes[name].reached[-1:] or ("nothing",)
            print(f"{name}: {reached[0]}, {time.perf_counter() - started:.1f} s", flush=True)
    if chosen.json:
        print_json({name: asdict(one) for name, one in outcomes.items()})
        return
    show(outcomes)


def lower_shapes(names: Sequence[str], recorded: bool) -> None:
    """Lower the true shapes, and print each as soon as it is known."""
    for name in names:
        found = lower(name)
        print(f"{name}: {found}", flush=True)
        if recorded:
            record("base", name, found)


def show(outcomes: dict[str, Outcome]) -> None:
    """Print the errors as a table, and the refusals below it."""
    errors = "traced", "packed", "answer", "chosen"
    heads = ("family", *STAGES, *errors, "answered", "levels", "bootstraps")
    print_table(heads, [_row(name, one) for name, one in outcomes.items()])
    for name, one in outcomes.items():
        if one.refusal:
            print(f"\n{name}: {one.refusal}")
    counts = [sum(stage in one.reached for one in outcomes.values()) for stage in STAGES]
    print("\n" + ", ".join(f"{n} {stage}" for n, stage in zip(counts, STAGES, strict=True)))


def _row(name: str, one: Outcome) -> tuple[str, ...]:
    stages = ("yes" if stage in one.reached else "–" for stage in STAGES)
    errors = (f"{error:.1e}" for error in (one.traced, one.packed, one.answer, one.chosen))
    counts = (str(count) for count in (one.answered, one.levels, one.bootstraps))
    return (name, *stages, *errors, *counts)


if __name__ == "__main__":
    main()
