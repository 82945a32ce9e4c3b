"""Predicted seconds beside measured ones, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atlasc.cli.output import print_table

if TYPE_CHECKING:
    from atlasc.run.timing import Timing


def show_timing(timing: Timing) -> None:
    """Print seconds of one run by kind of op, and of the whole."""
    print_table(
        ("op", "ops", "predicted s", "measured s", "predicted / measured"),
        [
            (row["kind"], row["ops"], row["predicted"], row["measured"], row["ratio"])
            for row in timing.per_kind()
        ],
    )
    whole = timing.summary()
    predicted = "" if whole["predicted"] is None else f"; predicted {whole['predicted']:.4g} s"
    ratio = "" if whole["ratio"] is None else f", {whole['ratio']:.3g} times that"
    runs = "" if timing.runs == 1 else f", the mean of {timing.runs} runs"
    print(f"executed in {whole['measured']:.4g} s{runs}{predicted}{ratio}")
    if timing.simulated:
        print(
            "these are seconds of a simulation, in which nothing is encrypted; the predicted ones "
            "are of real encryption"
        )
