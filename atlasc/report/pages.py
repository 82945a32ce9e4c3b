"""The pages ``report.html`` (compiled program), ``front.html`` (search), and of an evaluation.

Each page is one file that needs no script, font or picture from elsewhere. The templates are in the
folder beside this file. Every value in a page is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from atlasc.calibration.calibrate import OUTLIER_TITLES, outliers_of
from atlasc.ir.errors import printable
from atlasc.report import svg
from atlasc.search.front import Front
from atlasc.search.points import Settings
from atlasc.simulation.agreement import DESCRIPTIONS, LEAST_AGREEMENT
from atlasc.simulation.intervals import fisher, wilson
from atlasc.templates import templates


def report_html(
    facts: Mapping[str, Any],
    front: Front | None = None,
    ops: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of a compiled program.

    Args:
        facts: the manifest's entries, see :func:`atlasc.compilation.lowering.compile_module`.
        front: the front of the search, if there was one.
        ops: one row for each nonlinear op: location, op, layer, depth, settings and bases (texts).
    """
    layers, calibration = facts["costs"]["per_layer"], facts["calibration"]
    names = ["outside" if row["layer"] is None else str(row["layer"]) for row in layers]
    series = [
        ("levels", [row["levels_total"] for row in layers], svg.BLUE),
        ("bootstraps", [row["bootstraps"] for row in layers], svg.ORANGE),
        ("key switches", [row["key_switches"] for row in layers], "#7a9e6d"),
    ]
    left = {(v["location"], v["op"]) for v in calibration["violations"]}
    ranges = [
        (
            f"{r['location'] or 'model'} {r['op'].removeprefix('nn.')}"[-44:],
            *(r[end] for end in ("low", "high", "seen_low", "seen_high")),
            (r["location"], r["op"]) in left,
        )
        for r in calibration["ranges"]
    ]
    times = svg.times(facts["costs"])
    return _page(
        "report.html",
        **facts,
        title=f"{facts['model']['name']} on {facts['target']}",
        leaving=len({violation["input"] for violation in calibration["violations"]}),
        ops=ops,
        outliers=outliers_of(calibration),
        outlier_titles=OUTLIER_TITLES,
        layer_chart=Markup(svg.columns(names, series)),
        time_chart=Markup(svg.stacked(times)) if times else "",
        range_chart=Markup(svg.ranges(ranges)),
        front=front,
        front_chart="" if front is None else Markup(svg.front_chart(front)),
    )


def front_html(front: Front, accurate: float = 0.0) -> str:
    """The page of a search, with only a few lines of script of its own.

    Args:
        front: the front of the search.
        accurate: an error; the cheapest point with at most this error is shown first.
    """
    facts = dict(front.facts)
    found = {
        "strategy": front.strategy,
        **{f"option {name}": value for name, value in facts.get("options", {}).items()},
        **{name.replace("_", " "): v for name, v in front.parametrisation.to_dict().items()},
        "reference point": f"{front.cost} {front.reference[0]:g}, error {front.reference[1]:g}",
        **{n.replace("_", " "): v for n, v in facts.items() if n not in ("options", "seed")},
    }
    points = front.points
    chosen = (index for index, point in enumerate(points) if point.error <= accurate)
    return _page(
        "front.html",
        title=f"Front of {facts.get('model', 'a model')}",
        front=front,
        facts=facts,
        chart=Markup(svg.front_chart(front)),
        degrees=[_degrees(point.settings, front) for point in points],
        share=share,
        score=lambda point: share(point.accuracy, _interval(point.accuracy, front)),
        asked=LEAST_AGREEMENT[front.measure],
        meaning=DESCRIPTIONS[front.measure],
        accuracy_chart=Markup(svg.accuracy_chart(front)) if _has_accuracy(front) else "",
        found=found.items(),
        chosen=next(chosen, len(points) - 1),
    )


def _has_accuracy(front: Front) -> bool:
    return front.model_accuracy is not None and any(p.accuracy is not None for p in front.points)


def _interval(accuracy: float | None, front: Front) -> tuple[float, float] | None:
    if accuracy is None:
        return None
    if front.measure == "values":
        return fisher(accuracy, front.labelled)
    return wilson(accuracy * front.labelled, front.labelled)


def evaluation_html(found: Mapping[str, Any], meanings: Mapping[str, str]) -> str:
    """The page of an evaluation.

    Args:
        found: the evaluation as JSON values.
        meanings: stage -> its description.
    """
    return _page(
        "evaluation.html",
        title=f"{found['program']} on {found['inputs']} inputs",
        found=found,
        meanings=meanings,
        share=share,
        groups=[
            ("unsafe", found["unsafe"]),
            ("undecided", found["undecided"]),
            ("left out", found["left_out"]),
            ("without a usable label", found["unlabelled"]),
        ],
    )


def share(value: float | None, interval: Sequence[float] | None = None) -> str | None:
    """A share in per cent, with the interval in brackets; None if it is not known."""
    if value is None:
        return None
    around = "" if interval is None else f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    return f"{value:.2%}{around}"


def _degrees(settings: Settings, front: Front) -> list[list[tuple[str, float]]]:
    """For each layer: the settings in words, each with a darkness from 0 to 0.75."""
    meaning = front.parametrisation
    return [
        [
            (meaning.algorithms[value], 0.0)
            if name == "softmax algorithm"
            else (str(meaning.degree(value)), 0.75 * value / high)
            if value > 0
            else ("–", 0.0)
            for name, value, high in zip(meaning.names, layer, meaning.upper, strict=True)
        ]
        for layer in settings
    ]


def _page(name: str, **facts: Any) -> str:
    environment = templates("atlasc.report", autoescape=True, finalize=_shown)
    environment.filters["duration"] = duration
    return environment.get_template(f"{name}.jinja").render(facts)


def _shown(value: object) -> str:
    """A value as text: a dash for None, four digits for a float.

    Control characters are spelled out, also those that change the direction of text.
    """
    if isinstance(value, Markup):
        return value
    if value is None:
        return "–"
    if value == math.inf:
        return "∞"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def duration(seconds: float | None) -> str:
    """Seconds, in a suitable unit."""
    if seconds is None:
        return "–"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
