"""The page ``report.html`` of a compiled program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atlasc.calibration.calibrate import OUTLIER_TITLES, outliers_of
from atlasc.report.charts import error_chart
from atlasc.report.pages import page
from atlasc.report.words import merged_rows
from atlasc.search.front import Front

COLOURS = 8
"""Number of colours of kinds of ops; the smallest shares have the last colour together."""
SHOWN_RANGES = 10
"""How many ranges stand open: those whose seen values come nearest to an end, or leave it."""
COUNTS = {
    "depth": "depth",
    "levels": "levels of nonlinear ops",
    "levels_total": "all levels",
    "bootstraps": "bootstraps",
    "key_switches": "key switches",
    "plaintext_products": "× plaintext",
    "ciphertext_products": "× ciphertext",
    "rotation_keys": "rotation keys",
}


def report_html(
    facts: Mapping[str, Any],
    front: Front | None = None,
    ops: Sequence[Mapping[str, Any]] = (),
    noise: Sequence[Mapping[str, Any]] = (),
    sent: str = "",
) -> str:
    """The page of a compiled program.

    Args:
        facts: the manifest's entries, see :func:`atlasc.compilation.lowering.compile_module`.
        front: the front of the search, if there was one.
        ops: one row for each nonlinear op: location, op, layer, depth, settings and bases (texts).
        noise: one row for each kind of op, the largest first: kind, ops, and change, by how much
            its errors change an answer (a root mean square, as a share of the answer's size).
        sent: what a client sends and gets, as a part of a sentence; empty if it is not known.
    """
    costs, calibration = facts["costs"], facts["calibration"]
    ranges = [_range(known, calibration) for known in calibration["ranges"]]
    ranges.sort(key=lambda row: row["margin"])
    chosen = facts["settings"].get("layers")
    place = next(
        (
            number
            for number, point in enumerate(front.points if front else ())
            if [*map(list, point.settings)] == chosen
        ),
        None,
    )
    return page(
        "report.html",
        **facts,
        title=f"{facts['model']['name']} on {facts['target']}",
        leaving=len({violation["input"] for violation in calibration["violations"]}),
        layers=merged_rows(costs["per_layer"], [*COUNTS, "seconds"]),
        counts=COUNTS,
        op_counts={key: name for key, name in COUNTS.items() if key in costs["per_kind"][0]},
        bars=_bars(costs),
        colours=_colours(costs),
        ranges=ranges,
        outliers=outliers_of(calibration),
        outlier_titles=OUTLIER_TITLES,
        shown_ranges=SHOWN_RANGES,
        polynomials=_by_layer(ops),
        noise=noise,
        sent=sent,
        front=front,
        point=place,
        chart=None if front is None else error_chart(front),
    )


def _colours(costs: Mapping[str, Any]) -> dict[str, int]:
    """Kind of op -> number of its colour, the kind that takes longest first."""
    kinds = [row["kind"] for row in costs["per_kind"]]
    return {kind: min(place, COLOURS - 1) for place, kind in enumerate(kinds)}


def _bars(costs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One bar for each run of equal layers; its parts are shares of the longest bar. Empty if the
    seconds are not predicted.
    """
    if costs["seconds"] is None:
        return []
    rows = merged_rows(costs["per_layer"], ["seconds"])
    longest = max((row["seconds"] for row in rows), default=0.0) or 1.0
    return [
        {
            "name": row["name"],
            "seconds": row["seconds"],
            "parts": [(kind, spent, spent / longest) for kind, spent in row["kinds"].items()],
        }
        for row in rows
    ]


def _range(known: Mapping[str, Any], calibration: Mapping[str, Any]) -> dict[str, Any]:
    """A range, and what of it the data reached; places and the margin are shares of the width."""
    low, high = known["low"], known["high"]
    width = (high - low) or 1.0
    start, end = (known["seen_low"] - low) / width, (known["seen_high"] - low) / width
    left = {(one["location"], one["op"]) for one in calibration["violations"]}
    return {
        **known,
        "name": f"{known['location'] or 'model'}: {known['op'].removeprefix('nn.')}",
        "start": min(max(start, 0.0), 1.0),
        "end": min(max(end, 0.0), 1.0),
        "margin": min(start, 1.0 - end),
        "left": (known["location"], known["op"]) in left,
    }


def _by_layer(ops: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Nonlinear ops by layer. Neighbouring layers whose ops have equal settings share a group."""
    groups: dict[int | None, list[Mapping[str, Any]]] = {}
    for op in ops:
        groups.setdefault(op.get("layer"), []).append(op)
    rows: list[dict[str, Any]] = []
    for layer, members in groups.items():
        same = [(op["op"], op["settings"], op["evaluated"], op["bases"]) for op in members]
        rows.append(
            {
                "layer": layer,
                "same": repr(same),
                "depth": sum(op["depth"] for op in members),
                "ops": members,
                "kinds": ", ".join(Counter(op["op"].removeprefix("nn.") for op in members)),
            }
        )
    return merged_rows(rows, ["same"])
