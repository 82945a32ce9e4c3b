"""What an approximation is: a frozen description that an op carries as an attribute, and that can
evaluate itself.

`from_attribute` turns the attribute of an nn op back into its description, whatever the algorithm,
so that the simulator, the expansion into poly ops and the count of depth treat all of them alike.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np

from atlasc.ir.bounds import MAX_COEFFICIENTS
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Op
from atlasc.ir.opdef import Symbol
from atlasc.passes.approximation.arithmetic import Arithmetic, Constant, DepthArithmetic, Interval

T = TypeVar("T")

#: Which family of approximations an nn op takes.
FAMILY_OF_OP: dict[str, str] = {
    "nn.softmax": "softmax",
    "nn.layer_norm": "norm",
    "nn.rms_norm": "norm",
    "nn.gelu": "activation",
    "nn.silu": "activation",
    "nn.tanh": "activation",
    "nn.relu": "activation",
}

#: Textbook norm around 1/sqrt, in the paper's convention. A mean costs two (mask, 1/n), the square
#: one, the product one and gamma one; a LayerNorm has two means, an RMSNorm one.
_NORM_LEVELS = {"nn.layer_norm": 7, "nn.rms_norm": 5}

_REGISTRY: dict[tuple[str, str], type[Approximation]] = {}


class Approximation(ABC):
    """One way to replace a nonlinear op by additions, products and Chebyshev sums.

    Subclasses are frozen dataclasses; their fields are the entries of the attribute.
    """

    family: ClassVar[str]
    algorithm: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "algorithm" in cls.__dict__:
            _REGISTRY[(cls.family, cls.algorithm)] = cls

    def to_attribute(self) -> dict[str, Any]:
        """The description as an attribute value: the algorithm, then the fields that are set.

        Arrays are left as they are, for a module to store them.
        """
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        values = {f.name: getattr(self, f.name) for f in fields}
        return {
            "algorithm": self.algorithm,
            **{name: _plain(value) for name, value in values.items() if value is not None},
        }

    @abstractmethod
    def depth_of(self, op_name: str) -> int:
        """Depth of that nn op under this approximation, in the paper's convention (`depth`)."""


class Softmax(Approximation):
    """Softmax over the last axis."""

    family = "softmax"

    @property
    @abstractmethod
    def mask_fill(self) -> float:
        """What a masked score is set to before `apply`: the low end of the exponential's range."""

    @abstractmethod
    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of scores [..., n], masked scores having been filled with `mask_fill`."""

    @property
    def depth(self) -> int:
        """Depth in the paper's convention."""
        return self.apply(DepthArithmetic(), 0)

    def depth_of(self, op_name: str = "nn.softmax") -> int:
        """Depth of that op in the paper's convention."""
        return self.depth


class Activation(Approximation):
    """A scalar function, elementwise."""

    family = "activation"

    @abstractmethod
    def apply(self, arithmetic: Arithmetic[T], x: T, function: str) -> T:
        """The function ("gelu", "gelu_tanh", "silu", "tanh", "relu") of x."""

    @property
    def depth(self) -> int:
        """Depth in the paper's convention."""
        return self.apply(DepthArithmetic(), 0, "gelu")

    def depth_of(self, op_name: str = "nn.gelu") -> int:
        """Depth of that op in the paper's convention."""
        return self.depth


class Norm(Approximation):
    """LayerNorm and RMSNorm over the last axis; subclasses supply 1/sqrt."""

    family = "norm"

    @abstractmethod
    def inverse_sqrt(self, arithmetic: Arithmetic[T], v: T) -> T:
        """1/sqrt(v / `unit`) up to the approximation, elementwise."""

    @property
    def unit(self) -> float:
        """The factor by which `inverse_sqrt` wants its argument scaled; it is folded into 1/n."""
        return 1.0

    def apply(
        self,
        arithmetic: Arithmetic[T],
        x: T,
        op_name: str,
        features: int,
        epsilon: float,
        gamma: Constant | None = None,
        beta: Constant | None = None,
    ) -> T:
        """The norm of x [..., features].

        The variance is n sum(x^2) - (sum x)^2, so both sums are taken at once (a scale by the
        integer n costs a lowering additions and no level).

        Args:
            op_name: "nn.layer_norm" or "nn.rms_norm".
            features: length of the last axis.
            epsilon: added to the variance or mean square.
            gamma, beta: plaintext vectors of length `features`, or whatever the arithmetic takes
                for them.
        """
        n = features
        spread = arithmetic.row_sum(arithmetic.square(x))
        if op_name == "nn.layer_norm":
            total = arithmetic.row_sum(x)
            spread = arithmetic.sub(arithmetic.scale(spread, float(n)), arithmetic.square(total))
            centred = arithmetic.sub(arithmetic.scale(x, float(n)), total)
            y = self._normalise(arithmetic, centred, spread, 1 / n**2, 1 / n, epsilon)
        else:
            y = self._normalise(arithmetic, x, spread, 1 / n, 1.0, epsilon)
        y = y if gamma is None else arithmetic.scale(y, gamma)
        return y if beta is None else arithmetic.add_const(y, beta)

    def _normalise(
        self,
        arithmetic: Arithmetic[T],
        centred: T,
        spread: T,
        spread_unit: float,
        centred_unit: float,
        epsilon: float,
    ) -> T:
        """(centred * centred_unit) / sqrt(spread * spread_unit + epsilon)."""
        variance = arithmetic.scale(spread, spread_unit * self.unit)
        variance = arithmetic.add_const(variance, epsilon * self.unit)
        numerator = arithmetic.scale(centred, centred_unit * math.sqrt(self.unit))
        return arithmetic.mul(numerator, self.inverse_sqrt(arithmetic, variance))

    def depth_of(self, op_name: str) -> int:
        """Depth of that op in the paper's convention."""
        return _NORM_LEVELS[op_name] + self.inverse_sqrt(DepthArithmetic(), 0)


def family_of(op_name: str) -> str:
    """The family of approximations that an nn op takes; raises AtlasError for any other op."""
    try:
        return FAMILY_OF_OP[op_name]
    except KeyError:
        raise AtlasError(f"{op_name} takes no approximation") from None


def carried_by(op: Op, symbols: Mapping[str, np.ndarray]) -> Approximation:
    """The description in an op's `approximation` attribute; see `from_attribute`."""
    return from_attribute(op.name, op.attributes["approximation"], symbols)


def from_attribute(
    op_name: str, attribute: dict[str, Any], symbols: Mapping[str, np.ndarray] | None = None
) -> Approximation:
    """The description that an `approximation` attribute stands for.

    Args:
        symbols: arrays of the module, for descriptions that hold some.

    Raises:
        AtlasError: an unknown algorithm, an unknown or missing entry, or a value out of range.
    """
    from atlasc.passes.approximation.algorithms import known as presets  # noqa: F401  registers all algorithms

    family = family_of(op_name)
    entries = dict(attribute)
    algorithm = entries.pop("algorithm", None)
    cls = _REGISTRY.get((family, algorithm)) if isinstance(algorithm, str) else None
    if cls is None:
        known = sorted(name for f, name in _REGISTRY if f == family)
        raise AtlasError(
            f"{op_name} knows no approximation algorithm {algorithm!r}",
            remedy=f"use one of {', '.join(known)}",
        )
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(set(entries) - set(names))
    if unknown:
        raise AtlasError(
            f"the approximation {algorithm!r} of {op_name} has no entry {unknown[0]!r}",
            remedy=f"its entries are {', '.join(names)}",
        )
    try:
        hints = get_type_hints(cls)
        for name, value in entries.items():
            _check_integers(value, name, hints[name] is int)
        return cls(**{name: _frozen(value, symbols or {}) for name, value in entries.items()})
    except (TypeError, ValueError) as error:
        raise AtlasError(
            f"the approximation {algorithm!r} of {op_name} is not complete, or not right",
            why=str(error),
        ) from None


def _check_integers(value: Any, name: str, wanted: bool) -> None:
    """Integers are degrees and counts: a large one would be fitted for days."""
    if wanted and type(value) is not int:
        raise ValueError(f"{name} is not an integer")
    if isinstance(value, int) and abs(value) >= MAX_COEFFICIENTS:
        raise ValueError(f"{name} is {value}, more than {MAX_COEFFICIENTS - 1}")
    if isinstance(value, list):
        for item in value:
            _check_integers(item, name, False)


def interval(value: Any, what: str) -> Interval:
    """`value` as (low, high); raises AtlasError where it is not a proper interval."""
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        raise AtlasError(f"{what} must be a pair of numbers", why=f"it is {value!r}") from None
    if not low < high:
        raise AtlasError(f"{what} must have low < high", why=f"it is ({low:g}, {high:g})")
    return low, high


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _frozen(value: Any, symbols: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, Symbol):
        return symbols[value.name]
    if isinstance(value, list | tuple):
        return tuple(_frozen(item, symbols) for item in value)
    return value
