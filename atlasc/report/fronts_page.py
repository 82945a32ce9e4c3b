"""The page of several searches: their fronts in one chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.report.charts import fronts_chart
from atlasc.report.pages import page
from atlasc.report.words import percent
from atlasc.search.front import Front
from atlasc.search.points import Cost

LIMITS = (0.1, 0.01, 0.001)
"""Errors, as shares of how answers vary, for which the table has the least cost."""
COST_WORDS = {"depth": "depth", "levels": "levels by formula", "latency": "predicted seconds"}


@dataclass(frozen=True)
class Row:
    """A search as the page shows it.

    Attributes:
        name: what the user calls it.
        kind: its outline in the chart.
        least: the least cost within each of `LIMITS`; None where no point has it.
        hypervolume: None unless all searches have the same cost and reference point.
    """

    name: str
    kind: str
    front: Front
    least: tuple[float | None, ...]
    hypervolume: float | None


def least_cost(front: Front, cost: Cost, limit: float) -> float | None:
    """The least cost of a trusted point whose error is at most a share of how answers vary."""
    found = [
        point.cost(cost)
        for point in front.points
        if point.error <= limit * front.variation and point.trusted(front.measure)
    ]
    return min(filter(math.isfinite, found), default=None)


def fronts_html(fronts: Sequence[tuple[str, Front]], cost: Cost) -> str:
    """The page of named fronts, over one cost that all of their points have."""
    comparable = len({(front.cost, front.reference) for _, front in fronts}) == 1
    models = {
        str(front.facts.get("model_digest")): str(front.facts.get("model", "a model"))
        for _, front in fronts
    }
    rows = [
        Row(
            name,
            f"s{number}",
            front,
            tuple(least_cost(front, cost, limit) for limit in LIMITS),
            front.hypervolume if comparable else None,
        )
        for number, (name, front) in enumerate(fronts)
    ]
    return page(
        "fronts.html",
        title=f"{len(fronts)} searches of {', '.join(dict.fromkeys(models.values()))}",
        rows=rows,
        limits=[f"within {percent(limit)}" for limit in LIMITS],
        cost=COST_WORDS[cost],
        models=list(models.values()),
        others=len(models) > 1,
        comparable=comparable,
        chart=fronts_chart(fronts, cost),
    )
