"""Settings, their space (the paper's section on the search space), and their costs.

A point is a setting with its measured costs. A front is the set of points that no other point
dominates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import STRICT, Amount, Count
from atlasc.polynomials.parametrisation import EXACT, PAPER, Parametrisation
from atlasc.simulation.agreement import LEAST_AGREEMENT, Measure

T = TypeVar("T")
Cost = Literal["depth", "levels", "latency"]
COSTS: tuple[Cost, ...] = ("depth", "levels", "latency")
SettingInteger = Annotated[int, Field(ge=-1, le=63)]
"""Bound of an integer; below 1 it stands for no polynomial."""
Error = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    BeforeValidator(lambda value: math.inf if value == "inf" else value),
]
"""An error; infinite if values explode."""
Share = Annotated[float, Field(ge=0, le=1)]
Settings = tuple[tuple[int, ...], ...]
"""The integers of each layer, in canonical form; `EXACT` for ops that are computed exactly."""

EXPERT_LAYER = (5, 5, 5, 5, 7, 9, 9, 9)
"""The setting `is` of every layer; its cost is the reference cost of hypervolumes."""


@dataclass(frozen=True)
class SearchSpace:
    """Vectors of the integers of all layers: 8 L integers in the paper.

    Attributes:
        layers: L, the number of blocks.
        parametrisation: meaning of the integers of a layer.
        sharing: number of consecutive blocks that share their integers; a vector has them once.
    """

    layers: int
    parametrisation: Parametrisation = PAPER
    sharing: int = 1

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise AtlasError("the model has no block to search settings for")
        if self.sharing < 1:
            raise AtlasError("settings are shared by at least 1 block")

    @property
    def variables(self) -> int:
        """Length of a vector."""
        return self.parametrisation.variables * -(-self.layers // self.sharing)

    @property
    def lower(self) -> np.ndarray:
        """Least value of each variable, [variables]."""
        return self.shared(self.parametrisation.lower)

    @property
    def upper(self) -> np.ndarray:
        """Greatest value of each variable, [variables]."""
        return self.shared(self.parametrisation.upper)

    def decode(self, vector: Sequence[int] | np.ndarray) -> Settings:
        """The settings of a vector, in canonical form.

        Raises:
            AtlasError: the vector has the wrong length, or a value is out of bounds.
        """
        values = np.asarray(vector)
        if values.shape != (self.variables,):
            raise AtlasError(
                f"{self.layers} layers have {self.variables} integers, not {values.size}"
                + (f" (each {self.sharing} layers share theirs)" if self.sharing > 1 else ""),
                remedy=f"give {self.parametrisation.variables} integers for each layer",
            )
        outside = np.flatnonzero(
            ((values < self.lower) | (values > self.upper)) & (values != EXACT)
        )
        if len(outside):
            first = int(outside[0])
            shared, index = divmod(first, self.parametrisation.variables)
            layer = shared * self.sharing
            raise AtlasError(
                f"{self.parametrisation.names[index]} of layer {layer} cannot be {values[first]}",
                why=f"its values go from {self.lower[first]} to {self.upper[first]}",
            )
        rows = values.reshape(-1, self.parametrisation.variables).tolist()
        found = [self.parametrisation.canonical(row) for row in rows]
        return tuple(found[layer // self.sharing] for layer in range(self.layers))

    def encode(self, settings: Sequence[Sequence[int]]) -> np.ndarray:
        """The vector of settings; of blocks that share integers, those of the first.

        Raises:
            AtlasError: as `decode`.
        """
        flat = [int(value) for layer in settings[:: self.sharing] for value in layer]
        return np.array(self.decode(flat)[:: self.sharing], dtype=np.int64).ravel()

    def random(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Uniform vectors, [count, variables]."""
        return generator.integers(self.lower, self.upper + 1, size=(count, self.variables))

    def shared(self, layer: Sequence[int] | np.ndarray) -> np.ndarray:
        """The vector in which all layers have the same integers."""
        return np.tile(np.asarray(layer, dtype=np.int64), -(-self.layers // self.sharing))


def is_partial(settings: Settings) -> bool:
    """Whether some op is left exact, so that the setting is a probe and not a program."""
    return any(EXACT in layer for layer in settings)


def expert(layers: int) -> Settings:
    """The setting `is` in the paper's integers."""
    return (EXPERT_LAYER,) * layers


def expert_layer(parametrisation: Parametrisation = PAPER) -> tuple[int, ...]:
    """The integers of the setting `is` for a layer: its degrees; if the ladder of degrees lacks
    one, the next higher degree, or the highest.
    """
    ladder = [parametrisation.degree(index) for index in range(1, max(parametrisation.upper) + 1)]
    indices = [
        next((index for index, degree in enumerate(ladder, 1) if degree >= PAPER.degree(p)), high)
        for p, high in zip(EXPERT_LAYER, parametrisation.upper)
    ]
    others = parametrisation.lower[len(indices) :]
    return (*map(min, indices, parametrisation.upper), *others)


@dataclass(frozen=True)
class Point:
    """A setting with its measured costs, and the schema of its JSON form.

    Attributes:
        depth: depth of the blocks, in the paper's convention.
        levels: levels of the folded blocks, by formula.
        error: error against the cleartext model (see `output_errors`); infinite if values explode.
        settings: the integers of each layer; see `Front.parametrisation`.
        seconds: predicted seconds of one encrypted run; None if they were not predicted.
        held_back_error: like `error`, on the held-back inputs; None if it was not measured.
        unsafe: number of held-back inputs that would get a wrong answer; None if not measured.
        agreement: share of the held-back or labelled inputs whose answers agree with the model's
            (`atlasc.simulation.agreement`); None if it was not measured.
        accuracy: on labelled inputs, the share of right classes, or the correlation of values; None
            if it was not measured.
        exploded_at: where values explode, as "module path: op"; None if they stay finite.
        mean_error, divergence, top_1: further measures of scores of the class of each token, on the
            search inputs; see `OutputErrors`. None for other outputs.
        memory_bytes: predicted memory of a server that runs the program; None if not predicted.
        bootstraps: predicted bootstraps of the program; None if not predicted.
    """

    __pydantic_config__ = STRICT

    depth: Count
    levels: Count
    error: Error
    settings: tuple[tuple[SettingInteger, ...], ...]
    seconds: Amount | None = None
    held_back_error: Error | None = None
    unsafe: Count | None = None
    agreement: Share | None = None
    accuracy: Annotated[float, Field(ge=-1, le=1)] | None = None
    exploded_at: str | None = None
    mean_error: Error | None = None
    divergence: Error | None = None
    top_1: Share | None = None
    memory_bytes: Count | None = None
    bootstraps: Count | None = None

    def cost(self, kind: Cost) -> float:
        """Depth, levels, or predicted seconds; infinite if the seconds are not known."""
        if kind == "latency":
            return math.inf if self.seconds is None else self.seconds
        return self.depth if kind == "depth" else self.levels

    def agrees(self, measure: Measure) -> bool:
        """Whether the point's answers agree with the model's, as far as this was measured."""
        return self.agreement is None or self.agreement >= LEAST_AGREEMENT[measure]

    def trusted(self, measure: Measure) -> bool:
        """Whether the point's answers agree with the model's and no held-back input is unsafe."""
        return self.agrees(measure) and not self.unsafe

    @property
    def valid(self) -> bool:
        """Whether all values stayed finite."""
        return math.isfinite(self.error)

    def to_dict(self) -> dict[str, Any]:
        """The point as JSON values, without unmeasured ones; an infinite error is the text
        "inf".
        """
        values = {name: getattr(self, name) for name in POINT_FIELDS}
        values["settings"] = [list(layer) for layer in self.settings]
        return {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
            if value is not None
        }

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f", {self.seconds:.4g} predicted seconds"
        shares = (
            ("top-1", self.top_1), ("agreement", self.agreement), ("accuracy", self.accuracy)
        )  # fmt: skip
        measured = [f", {name} {share:.2%}" for name, share in shares if share is not None]
        divergence = "" if self.divergence is None else f", KL {self.divergence:.3g} nats"
        return (
            f"depth {self.depth}, levels by formula {self.levels}, error {self.error:.3g}"
            f"{divergence}{seconds}{''.join(measured)}"
        )


POINT_FIELDS = tuple(field.name for field in fields(Point))


def cheap_to_accurate(items: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> list[T]:
    """The items that no other item dominates, from cheap to accurate; equal items appear once.

    Args:
        items: the items.
        key: gives cost and error of an item, then whatever decides between equals. Items of
            infinite error are left out.
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
    """The valid points that no other dominates, from cheap to accurate; equal points appear
    once.
    """
    return cheap_to_accurate(points, lambda p: (p.cost(cost), p.error, p.settings))


def hypervolume(points: Sequence[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Area below a reference point that points (cost, error) dominate, over the reference's
    cost.
    """
    at_cost, least = reference
    area = 0.0
    for cost, error in sorted(points):
        if cost < at_cost and error < least:
            area += (at_cost - cost) * (least - error)
            least = error
    return area / at_cost
