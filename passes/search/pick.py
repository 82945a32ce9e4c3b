"""The point of a front that keeps wanted limits, and which one is nearest where none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.point import Cost, Point


@dataclass(frozen=True)
class Wanted:
    """Limits that a point must keep; None where there is none.

    Attributes:
        error: mean absolute error on the search inputs.
        depth: of the blocks, in the paper's convention.
        levels: of the blocks.
        seconds: predicted, of one encrypted run.
    """

    error: float | None = None
    depth: int | None = None
    levels: int | None = None
    seconds: float | None = None

    def allows(self, point: Point) -> bool:
        """Whether the point is within all of them."""
        return self._accurate(point) and self.cost_ratio(point) <= 1

    def _accurate(self, point: Point) -> bool:
        return self.error is None or point.error <= self.error

    def cost_ratio(self, point: Point) -> float:
        """The largest share of an allowed cost that the point takes; 0 where none is named."""
        named = (
            (point.depth, self.depth),
            (point.levels, self.levels),
            (point.cost("latency"), self.seconds),
        )
        ratios = [cost / max(limit, 1e-9) for cost, limit in named if limit is not None]
        return max(ratios, default=0.0)

    def nearest(self, points: Sequence[Point]) -> Point:
        """The cheapest of those that are accurate enough, or the most accurate one."""
        accurate = [point for point in points if self._accurate(point)]
        if not accurate:
            return min(points, key=lambda point: point.error)
        return min(accurate, key=self.cost_ratio)

    def __str__(self) -> str:
        parts = [] if self.error is None else [f"an error of {self.error:g}"]
        parts += [] if self.depth is None else [f"depth {self.depth}"]
        parts += [] if self.levels is None else [f"levels {self.levels}"]
        parts += [] if self.seconds is None else [f"{self.seconds:g} predicted seconds"]
        return " and ".join(parts) + " or less"


def pick(points: Sequence[Point], cost: Cost, wanted: Wanted, tolerated: int = 0) -> Point:
    """The cheapest point within limits that name an error; otherwise the most accurate one.

    Points under which more held-back inputs than `tolerated` leave a range are taken only where
    there is no other, and then those that the fewest inputs leave.

    Args:
        points: of a front.
        cost: by which it was searched.
        wanted: names at least one limit.
        tolerated: held-back inputs that may leave a range; points where this was not measured pass.

    Raises:
        AtlasError: no point keeps the limits; it names the nearest one. Or it limits seconds
            that no point has.
    """
    if not points:
        raise AtlasError(
            "the search found no setting that stays finite",
            remedy="calibrate on more inputs, or give the search a larger budget",
        )
    if wanted == Wanted():
        raise AtlasError(
            "no limit is given", remedy="give a greatest error, depth, levels or seconds"
        )
    if wanted.seconds is not None and all(point.seconds is None for point in points):
        raise AtlasError(
            f"no setting can be picked by {wanted}",
            why=f"the search, by {cost}, predicted no seconds",
            remedy="search with --cost latency",
        )
    allowed = [point for point in points if wanted.allows(point)]
    if not allowed:
        raise AtlasError(
            f"no setting on the front has {wanted}",
            why=f"the nearest has {wanted.nearest(points)}",
            remedy="relax the limit, or give the search a larger budget",
        )
    fewest = max(tolerated, min(point.out_of_range or 0 for point in allowed))
    safe = [point for point in allowed if (point.out_of_range or 0) <= fewest]
    if wanted.error is not None:
        return min(safe, key=lambda point: (point.cost(cost), point.error))
    return min(safe, key=lambda point: (point.error, point.cost(cost)))
