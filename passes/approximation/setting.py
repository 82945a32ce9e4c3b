"""The integers of one layer, in canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.parametrisation import (
    PAPER,
    SOFTMAX_ITERATIONS,
    Parametrisation,
)

EXACT = -1
"""In place of the integers of an op: it is computed exactly, as a search probes single choices."""
ITERATIVE, DIRECT, RENORMALISED = 0, 1, 2
"""Values of the ninth integer; from the last on they stand for iterative softmaxes that are
renormalised."""


@dataclass(frozen=True)
class LayerSetting:
    """What a layer's nonlinear ops get. An integer i > 0 is the i-th rung of a ladder of degrees:
    degree 2^i - 1 in the paper.

    Attributes:
        softmax: iterative: p1..p5; a zero drops that iteration and all after it. Direct: the rung
            of 1/sum, that of the exponential, and zeros. `EXACT` five times for an exact softmax.
        first_norm, second_norm: of 1/sqrt.
        activation: of GELU or SiLU.
        algorithm: of the softmax, see `SOFTMAX_ALGORITHMS`; None where layers cannot choose.
    """

    softmax: tuple[int, ...]
    first_norm: int
    second_norm: int
    activation: int
    algorithm: int | None = None

    @staticmethod
    def of(integers: Sequence[int], parametrisation: Parametrisation = PAPER) -> LayerSetting:
        """The setting of a layer's integers, in canonical form: what a softmax does not use is
        zero, and a softmax is exact as a whole.

        Raises:
            AtlasError: the wrong number of integers, or no such algorithm.
        """
        if len(integers) != parametrisation.variables:
            raise AtlasError(
                f"a layer has {parametrisation.variables} settings, not {len(integers)}",
                remedy=f"give {', '.join(parametrisation.names)}",
            )
        values = [int(value) for value in integers]
        softmax, others = values[:SOFTMAX_ITERATIONS], values[SOFTMAX_ITERATIONS:]
        algorithm = others[3] if len(others) > 3 else None
        if EXACT in softmax:
            softmax = [EXACT] * SOFTMAX_ITERATIONS
            algorithm = None if algorithm is None else ITERATIVE
        if algorithm is not None and not 0 <= algorithm < len(parametrisation.algorithms):
            raise AtlasError(
                f"there is no softmax algorithm number {algorithm}",
                remedy=f"0 to {len(parametrisation.algorithms) - 1} stand for "
                f"{', '.join(parametrisation.algorithms)}",
            )
        if algorithm == DIRECT:
            softmax = [softmax[0], max(softmax[1], 1), 0, 0, 0]
        elif 0 in softmax:
            end = softmax.index(0)
            softmax[end:] = [0] * (SOFTMAX_ITERATIONS - end)
        return LayerSetting(tuple(softmax), others[0], others[1], others[2], algorithm)

    @property
    def iterations(self) -> tuple[int, ...]:
        """The softmax's rungs that are used."""
        return tuple(rung for rung in self.softmax if rung)

    @property
    def renormalisations(self) -> int:
        """Of an iterative softmax."""
        return max(0, (self.algorithm or 0) - DIRECT)

    @property
    def integers(self) -> tuple[int, ...]:
        """The integers, as `of` takes them."""
        values = (*self.softmax, self.first_norm, self.second_norm, self.activation)
        return values if self.algorithm is None else (*values, self.algorithm)
