"""Approximations: frozen objects that an op carries as an attribute and that evaluate themselves
against any arithmetic.

The simulator, the expansion into poly ops and the counts of depth and levels use the three families
below and know no single algorithm.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from atlasc.ir.approximation import ApproximationAttribute
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Op
from atlasc.polynomials.arithmetic import (
    Constant,
    DepthArithmetic,
    StepRecorder,
    Term,
    levels_of_steps,
)
from atlasc.polynomials.fits.chebyshev_sum import Interval, checked

NORM_DEPTH = {"nn.layer_norm": 7, "nn.rms_norm": 5}
"""Depth of a textbook norm around 1/sqrt, in the paper's convention. A mean costs two (mask, 1/n),
the square one, the product one and gamma one; a LayerNorm has two means, an RMSNorm one."""


class Approximation(ApproximationAttribute):
    """One way to replace a nonlinear op by additions, products and Chebyshev sums.

    Subclasses are frozen dataclasses; their fields are the entries of the text form. Fields that
    are called `..degree`, `..range` or `..coefficients` are checked here. A module of them is
    declared as an entry point of the group ``atlasc.algorithms``.

    Attributes:
        positive: names of ranges that hold positive numbers only.
        example: arguments of `apply` beside the first, of which depth and levels are counted; they
            are those of all others.
    """

    positive: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[tuple[Any, ...]] = ()

    def __post_init__(self) -> None:
        for name, value in self.fields_set().items():
            if name.endswith("degree") and value < 1:
                raise AtlasError(f"{self.family}: a polynomial cannot have degree {value}")
            degree = getattr(self, name.replace("coefficients", "degree"), None)
            if name.endswith("coefficients") and degree is not None:
                value = checked(value, degree)
            if name.endswith("range"):
                what = f"{self.family}: the {name.replace('_', ' ')}"
                value = interval(value, what, name in self.positive)
            object.__setattr__(self, name, value)

    @abstractmethod
    def apply(self, *args: Any, **kwargs: Any) -> Term:
        """The algorithm on its argument."""

    @cached_property
    def depth(self) -> int:
        """Depth of the algorithm in the paper's convention."""
        return DepthArithmetic().run(self.apply, 0, *self.example)

    def depth_of(self, op_name: str) -> int:
        """Depth of that nn op under this approximation, in the paper's convention."""
        return self.depth

    @cached_property
    def levels(self) -> int:
        """Levels that an op consumes in a lowered program; see `levels_of_steps`."""
        return self._counted(*self.example)

    def levels_of(self, op_name: str) -> int:
        """Levels that that nn op consumes under this approximation in a lowered program."""
        return self.levels

    def _counted(self, *example: Any) -> int:
        recorder = StepRecorder()
        recorder.run(self.apply, 0, *example)
        return levels_of_steps(recorder.steps)


@dataclass(frozen=True, kw_only=True)
class Softmax(Approximation):
    """Softmax over the last axis.

    The sums of a row grow with the number of its visible keys, which is public: a padding mask,
    causality and a window tell it. A multiple of log(keys / visible keys) that is added to all
    scores of a row changes no probability, costs no level, and brings the sums of all rows close to
    each other.

    Attributes:
        log_keys: the factor; None for `temperature`, with which a sum is as if all keys were
            visible.
    """

    family = "softmax"

    log_keys: float | None = None

    @property
    @abstractmethod
    def mask_fill(self) -> float:
        """What a masked score is set to before `apply`. Any score of the exponential's range does,
        as its weight becomes 0. It is the middle where scores are mapped to [-1, 1], so that it
        takes no room where they are bootstrapped.
        """

    @property
    def temperature(self) -> float:
        """T, where the algorithm first sums a row's exp(score / T)."""
        return 1.0

    def visible(self, scores: Term) -> Term:
        """The scores as `apply` wants them."""
        factor = self.temperature if self.log_keys is None else self.log_keys
        return scores.filled(self.mask_fill, factor)

    @abstractmethod
    def apply(self, scores: Term) -> Term:
        """Probabilities of scores [..., n]; see `visible`."""


class Activation(Approximation):
    """A scalar function, elementwise."""

    family = "activation"
    example = ("gelu",)

    @staticmethod
    def covers(function: str) -> bool:
        """Whether the algorithm has a polynomial for a function."""
        return True

    @abstractmethod
    def apply(self, x: Term, function: str) -> Term:
        """The function of x; its name is in `scalar_functions.ACTIVATIONS`."""

    def levels_of(self, op_name: str) -> int:
        """As of every approximation. How many terms of a sum are negligible depends on the
        function.
        """
        function = op_name.removeprefix("nn.")
        if function not in self._levels:
            self._levels[function] = self._counted(function)
        return self._levels[function]

    @cached_property
    def _levels(self) -> dict[str, int]:
        return {}


class Norm(Approximation):
    """LayerNorm and RMSNorm over the last axis; subclasses supply 1/sqrt."""

    family = "norm"
    example = (768, 1e-5)

    @property
    def unit(self) -> float:
        """The factor by which `inverse_sqrt` wants its argument scaled; it is folded into 1/n."""
        return 1.0

    @abstractmethod
    def inverse_sqrt(self, v: Term) -> Term:
        """1/sqrt(v / `unit`) up to the approximation, elementwise."""

    def apply(
        self, x: Term, features: int, epsilon: float, gamma: Constant = None, beta: Constant = None
    ) -> Term:
        """gamma x / sqrt(mean(x^2) + epsilon) + beta for x [..., features], which is centred for
        a LayerNorm; gamma and beta are [features].
        """
        y = self.normalised(x, 1 / features, epsilon)
        y = y if gamma is None else y * gamma
        return y if beta is None else y + beta

    def normalised(self, x: Term, share: float, epsilon: float) -> Term:
        """x / sqrt(share * sum(x^2) + epsilon)."""
        variance = x.square().row_sum() * (share * self.unit) + epsilon * self.unit
        return x * math.sqrt(self.unit) * self.inverse_sqrt(variance)

    def depth_of(self, op_name: str) -> int:
        """Depth of that nn op under this approximation, in the paper's convention."""
        return NORM_DEPTH[op_name] + DepthArithmetic().run(self.inverse_sqrt, 0)


def carried_by(op: Op) -> Approximation:
    """The approximation that an op carries; raises AtlasError where it carries none."""
    if "approximation" not in op.attributes:
        raise AtlasError(
            f"{op.name} has no approximation",
            where=op.location,
            why="under CKKS only polynomials can be evaluated",
            remedy="apply a recipe or a search result first",
        )
    carried = op.attributes["approximation"]
    assert isinstance(carried, Approximation)
    return carried


def applied(op: Op, approximation: Approximation, x: Term, *constants: Constant) -> Term:
    """An op under its approximation; the constants are gamma and beta of a norm."""
    if isinstance(approximation, Softmax):
        return approximation.apply(approximation.visible(x))
    if isinstance(approximation, Activation):
        return approximation.apply(x, op.name.removeprefix("nn."))
    assert isinstance(approximation, Norm)
    features = int(op.operands[0].tensor.shape[-1])
    x = x.centred(features) if op.name == "nn.layer_norm" else x
    return approximation.apply(x, features, op.attributes["epsilon"], *constants)


def interval(value: Any, what: str, positive: bool = False) -> Interval:
    """`value` as (low, high); raises AtlasError where it is not a proper interval."""
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        raise AtlasError(f"{what} must be a pair of numbers", why=f"it is {value!r}") from None
    if not low < high:
        raise AtlasError(f"{what} must have low < high", why=f"it is ({low:g}, {high:g})")
    if positive and low <= 0:
        raise AtlasError(f"{what} must be positive", why=f"it is ({low:g}, {high:g})")
    return low, high
