"""The figures by name: titles, units and bounds; those that were recorded; the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import EMULATED, Outcome

RECORDED = Path(__file__).resolve().parent / "recorded"


@dataclass(frozen=True)
class Figure:
    """What a number is.

    Attributes:
        title: what was measured.
        unit: of the number.
    """

    title: str
    unit: str


BOOTSTRAPS = {
    "bootstrap_one": "bootstrap of one",
    "bootstrap_two": "bootstrap of two",
    "bootstrap_narrow_one": "narrow bootstrap of one",
    "bootstrap_narrow_two": "narrow bootstrap of two",
}
PRIMITIVES = {
    "sum": "sum",
    "product": "product, relinearized and rescaled",
    "plain_product": "product with a plaintext",
    "rotation": "rotation, which is a key switch",
    "eight_rotations": "eight rotations of one, hoisted",
}
FIGURES = {
    "fp64": Figure("double precision", "TFLOP/s"),
    "words": Figure("64-bit products, upper halves", "T/s"),
    "copy": Figure("memory, read and written by a copy", "TB/s"),
    "checks": Figure("checks that passed", ""),
    "forward_transform": Figure("forward transform, a limb", "ms"),
    "backward_transform": Figure("backward transform, a limb", "ms"),
    **{name: Figure(title, "ms") for name, title in (BOOTSTRAPS | PRIMITIVES).items()},
    **{
        f"{name}_error": Figure(f"{title}: greatest error", "log2")
        for name, title in (BOOTSTRAPS | PRIMITIVES).items()
    },
    **{f"{name}_launches": Figure(f"{title}: launches", "") for name, title in BOOTSTRAPS.items()},
    **{
        f"{name}_bytes": Figure(f"{title}: read and written", "GB")
        for name, title in BOOTSTRAPS.items()
    },
    "launches": Figure("launches of kernels, and copies", ""),
    "bytes": Figure("read and written", "GB"),
    "memory": Figure("memory of the device, at most", "GiB"),
    "keys": Figure("making keys", "s"),
    "seconds": Figure("computation", "s"),
    "step": Figure("a step, median", "s"),
    "prompt": Figure("the prompt", "s"),
    "tokens": Figure("tokens that are the model's", ""),
    "error": Figure("greatest error / greatest output", "log2"),
}

AIMS = {
    ("cuda/bootstraps", "bootstrap_two"): 26.0,
    ("cuda/bootstraps", "bootstrap_narrow_one"): 14.0,
    ("cuda/bootstraps", "bootstrap_narrow_one_error"): -18.0,
    ("cuda/bert-base", "seconds"): 9.0,
}
"""What the project wants to reach, at most, on an H200."""


def recorded() -> list[dict[str, Any]]:
    """The files of earlier figures: ``device``, and ``parts``, whose figures have a value, the
    commit and the page.
    """
    return [json.loads(path.read_text("utf-8")) for path in sorted(RECORDED.glob("*.json"))]


def table(
    outcomes: Mapping[str, Outcome], device: str, known: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Lines: each figure beside the recorded one of the same device, else of the first device.

    A ratio is this figure by the recorded one; exponents of errors have none.
    """
    same = [one for one in known if one["device"] == device]
    emulated = device == "emulated"
    others = [one for one in known if one["device"] != "emulated"]
    beside = (same or ([] if emulated else others) or [{"device": "none", "parts": {}}])[0]
    rows = [("part", "figure", "here", f"recorded ({beside['device']})", "ratio", "aim")]
    for name, outcome in outcomes.items():
        if outcome.state != "done":
            rows.append((name, outcome.state.upper(), outcome.reason, "", "", ""))
            continue
        for key, value in outcome.figures.items():
            figure = FIGURES.get(key, Figure(key, ""))
            before = beside["parts"].get(name, {}).get(key, {}).get("value")
            ratio = f"{value / before:.2f}" if before and figure.unit != "log2" else ""
            aim = AIMS.get((name, key))
            rows.append(
                (name, figure.title, shown(value, figure.unit), shown(before, figure.unit), ratio,
                 "" if aim is None else f"at most {shown(aim, figure.unit)}")
            )  # fmt: skip
    return _aligned(rows, [EMULATED] if emulated else [])


def _aligned(rows: Sequence[tuple[str, ...]], heading: list[str]) -> list[str]:
    """Columns as wide as their cells; a reason may be longer than its column."""
    states = ("SKIPPED", "FAILED")
    wide = [
        max(len(row[at]) for row in rows if at < 2 or row[1] not in states)
        for at in range(len(rows[0]))
    ]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, wide)).rstrip() for row in rows
    ]
    return [*heading, *lines]


def shown(value: float | None, unit: str) -> str:
    """A number with its unit; empty if there is none."""
    if value is None:
        return ""
    if unit == "log2":
        return f"2^{value:.1f}"
    number = f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:.4g}"
    return f"{number} {unit}".rstrip()
