"""What a recipe is: from what calibration measured to the approximations of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from atlasc.passes.approximation.algorithms.activation import ActivationApproximation
from atlasc.passes.approximation.description import (
    Activation,
    Approximation,
    Norm,
    Softmax,
    family_of,
)
from atlasc.passes.approximation.fits.chebyshev_sum import Interval


class Recipe(ABC):
    """Settings of all nonlinear ops of a model.

    Attributes:
        name: what the command line calls it.
        source: the paper that published the settings.
        assumed: True where the paper's settings could not be established and stand-ins are used.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    assumed: ClassVar[bool] = False

    @abstractmethod
    def softmax(
        self,
        layer: int | None = None,
        *,
        shift: float | None = None,
        scores: Interval | None = None,
        width: int | None = None,
        sums: Interval | None = None,
    ) -> Softmax:
        """The softmax of a layer.

        Args:
            layer: its index.
            shift: about the greatest score, with a margin; None without calibration.
            scores: (least, greatest) score, None without calibration.
            width: keys in a row.
            sums: least and greatest row sum of exp(x - shift), with a margin; recipes that invert
                that sum place their range by it. None leaves the published range, which suits few
                models.
        """

    @abstractmethod
    def norm(self, op_name: str, value_range: Interval | None = None, location: str = "") -> Norm:
        """A norm, `op_name` being "nn.layer_norm" or "nn.rms_norm".

        Args:
            value_range: of the variance (or mean square) plus epsilon; None without calibration.
            location: module path, for recipes that tell norms apart.
        """

    def activation(self, op_name: str, value_range: Interval | None = None) -> Activation:
        """The activation `op_name` ("nn.gelu", ...) on that range of arguments."""
        return ActivationApproximation(511, value_range)

    def depth_of(self, op_name: str, location: str = "") -> int:
        """Depth of one op under this recipe without calibration, in the paper's convention."""
        family = family_of(op_name)
        approximation: Approximation
        if family == "softmax":
            approximation = self.softmax()
        elif family == "norm":
            approximation = self.norm(op_name, None, location)
        else:
            approximation = self.activation(op_name)
        return approximation.depth_of(op_name)


def default_shift(shift: float | None, scores: Interval | None) -> float:
    """The shift if known, else the greatest score, else 0."""
    if shift is not None:
        return shift
    return 0.0 if scores is None else scores[1]
