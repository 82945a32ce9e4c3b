"""Points: settings and what they were found to cost; which of them no other one dominates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field

from atlasc.ir.files import STRICT, Amount, Count

T = TypeVar("T")
Cost = Literal["depth", "levels", "latency"]
COSTS: tuple[Cost, ...] = ("depth", "levels", "latency")
SettingInteger = Annotated[int, Field(ge=-1, le=63)]
"""Below 1 where there is no polynomial."""
Error = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
]
"""Infinite where values explode."""


@dataclass(frozen=True)
class Point:
    """A setting and what it was found to cost, and the schema of its JSON form.

    Attributes:
        depth: of the blocks, in the paper's convention.
        levels: of the blocks once folded, by formula.
        error: mean absolute error against the cleartext model; infinite where values explode.
        settings: the integers of each layer; see `Front.parametrisation`.
        seconds: predicted latency of one encrypted run; None where it was not predicted.
        held_back_error: as `error`, on the inputs that calibration held back; None where it was not
            measured.
        out_of_range: how many of these leave the range of a polynomial; None likewise.
        exploded_at: where values explode, as "module path: op"; None where they stay finite.
    """

    __pydantic_config__ = STRICT

    depth: Count
    levels: Count
    error: Error
    settings: tuple[tuple[SettingInteger, ...], ...]
    seconds: Amount | None = None
    held_back_error: Error | None = None
    out_of_range: Count | None = None
    exploded_at: str | None = None

    def cost(self, kind: Cost) -> float:
        """Depth, levels, or predicted seconds: infinite where they are not known."""
        if kind == "latency":
            return math.inf if self.seconds is None else self.seconds
        return self.depth if kind == "depth" else self.levels

    @property
    def valid(self) -> bool:
        """Whether all values stayed finite."""
        return math.isfinite(self.error)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, without what was not measured; an infinite error is the text "inf"."""
        values = {name: getattr(self, name) for name in POINT_FIELDS}
        values["settings"] = [list(layer) for layer in self.settings]
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
            if value is not None
        }

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f", {self.seconds:.4g} predicted seconds"
        return f"depth {self.depth}, levels {self.levels}, error {self.error:.3g}{seconds}"


POINT_FIELDS = tuple(field.name for field in fields(Point))


def cheap_to_accurate(items: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> list[T]:
    """The items that no other one dominates, from cheap to accurate; equals appear once.

    Args:
        key: cost and error of an item, and what decides between equals. Infinite errors are left
            out.
    """
    front: list[T] = []
    least = math.inf
    for item in sorted(items, key=key):
        error = key(item)[1]
        if error < least:
            least = error
            front.append(item)
    return front


def non_dominated(points: Iterable[Point], cost: Cost = "depth") -> list[Point]:
    """The valid points that no other one dominates, from cheap to accurate; equals appear once."""
    return cheap_to_accurate(points, lambda p: (p.cost(cost), p.error, p.settings))


def hypervolume(points: Sequence[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Area that points of (cost, error) dominate below a reference point, over its cost."""
    at_cost, least = reference
    area = 0.0
    for cost, error in sorted(points):
        if cost < at_cost and error < least:
            area += (at_cost - cost) * (least - error)
            least = error
    return area / at_cost
