"""Meaning of the integers of a setting, and the switches that widen a search space.

A layer has eight integers. An integer i > 0 is the i-th of a list of degrees; in the paper this is
the degree 2^i - 1. The first five are the fits of 1/sqrt of an iterative softmax; a zero drops this
iteration and all later ones. For a direct softmax they are the fit of 1/sum, that of exp, and
zeros. Then come 1/sqrt of the first norm, 1/sqrt of the second, and the activation. If layers may
choose, a ninth integer is the algorithm of the softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import STRICT

SOFTMAX_ITERATIONS = 5
SOFTMAX, FIRST_NORM, SECOND_NORM = tuple(range(SOFTMAX_ITERATIONS)), (5,), (6,)
ACTIVATION, ALGORITHM = (7,), (8,)
"""Positions among the integers of a layer."""
NAMES = "p1", "p2", "p3", "p4", "p5", "norm 1", "norm 2", "activation", "softmax algorithm"
LARGEST_SOFTMAX_DEGREE = 127
"""Greatest exponent of 1/sqrt in an iteration: the paper's exponents of a softmax end at 7."""

EXACT = -1
"""Stands for the integers of an op that is computed exactly, because a search probes single
choices."""
ITERATIVE, DIRECT, RENORMALISED = 0, 1, 2
"""Values of the ninth integer. `RENORMALISED` and greater values are iterative softmaxes with one
or more renormalisations."""

DEGREES: dict[str, tuple[int, ...]] = {
    "powers": tuple(2**p - 1 for p in range(1, 10)),
    "openfhe": (5, 13, 27, 59, 119, 247, 495),
    "any": (
        *(1, 2, 3, 5, 7, 9, 11, 13, 15, 19, 23, 27, 31, 39, 47, 55, 63),
        *(79, 95, 111, 127, 159, 191, 223, 255, 319, 383, 447, 511),
    ),
}
"""Name -> degrees. `powers`: the highest degree of each number of levels. `openfhe`: the highest
degree that OpenFHE evaluates in 4 to 10 levels, domain map included. `any`: four degrees for each
number of levels, for costs that depend on the degree and not only on levels."""

SOFTMAX_ALGORITHMS = (
    "iterative",
    "direct",
    "iterative, renormalised",
    "iterative, renormalised twice",
)
"""Algorithms of a softmax, in the order of the integer that chooses among them."""

SWITCHES: dict[str, tuple[str, ...]] = {
    "softmax_ranges": ("paper", "measured"),
    "fits": ("interpolated", "weighted"),
    "degrees": tuple(DEGREES),
    "softmax_algorithms": ("iterative", "any"),
    "channels": ("shared", "each"),
}


@dataclass(frozen=True)
class Parametrisation:
    """Meaning of the integers of a layer's setting, and the schema of its JSON form.

    Attributes:
        softmax_ranges: ranges of an iterative softmax: "paper" for the paper's fixed ranges,
            "measured" for those of the calibration, by layer and iteration.
        fits: "interpolated" at Chebyshev nodes, or "weighted" by the arguments seen in
            calibration, bounded on the whole range.
        degrees: name of a list of degrees in `DEGREES`; an integer i > 0 means its i-th degree.
        softmax_algorithms: "iterative", or "any": a ninth integer of each layer chooses among
            `algorithms`.
        channels: polynomials of an activation: one "shared" by all channels, or for "each" channel
            its own, of the same degree but on its own range.
    """

    __pydantic_config__ = STRICT

    softmax_ranges: str = "paper"
    fits: str = "interpolated"
    degrees: str = "powers"
    softmax_algorithms: str = "iterative"
    channels: str = "shared"

    def __post_init__(self) -> None:
        for name, known in SWITCHES.items():
            if getattr(self, name) not in known:
                raise AtlasError(
                    f"{name.replace('_', '-')} cannot be {getattr(self, name)!r}",
                    remedy=f"use one of {', '.join(known)}",
                )

    def degree(self, number: int) -> int:
        """The degree that a positive integer of a setting stands for.

        Raises:
            AtlasError: the list of degrees is shorter.
        """
        degrees = DEGREES[self.degrees]
        if not 1 <= number <= len(degrees):
            raise AtlasError(
                f"there is no polynomial number {number}",
                why=f"the degrees {self.degrees!r} are {', '.join(map(str, degrees))}",
                remedy=f"use an integer from 1 to {len(degrees)}",
            )
        return degrees[number - 1]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The softmax algorithms that a layer may choose from."""
        return SOFTMAX_ALGORITHMS if self.softmax_algorithms == "any" else SOFTMAX_ALGORITHMS[:1]

    @property
    def variables(self) -> int:
        """Number of integers of a layer."""
        return 8 if len(self.algorithms) == 1 else 9

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the integers of a layer."""
        return NAMES[: self.variables]

    @property
    def lower(self) -> tuple[int, ...]:
        """Least integers of a layer."""
        return (1, 0, 0, 0, 0, 1, 1, 1, 0)[: self.variables]

    @property
    def upper(self) -> tuple[int, ...]:
        """Greatest integers of a layer."""
        degrees = DEGREES[self.degrees]
        softmax = sum(degree <= LARGEST_SOFTMAX_DEGREE for degree in degrees)
        upper = *[softmax] * SOFTMAX_ITERATIONS, *[len(degrees)] * 3, len(self.algorithms) - 1
        return upper[: self.variables]

    def canonical(self, integers: Sequence[int]) -> tuple[int, ...]:
        """A layer's integers, with zeros where its softmax uses none; a softmax with an exact part
        is exact as a whole.

        Raises:
            AtlasError: the number of integers is wrong, or the algorithm does not exist.
        """
        if len(integers) != self.variables:
            raise AtlasError(
                f"a layer has {self.variables} integers, not {len(integers)}",
                remedy=f"give {', '.join(self.names)}",
            )
        values = [int(value) for value in integers]
        softmax, others, algorithm = values[:SOFTMAX_ITERATIONS], values[5:8], values[8:]
        if EXACT in softmax:
            softmax, algorithm = [EXACT] * SOFTMAX_ITERATIONS, [ITERATIVE] * len(algorithm)
        if algorithm and not 0 <= algorithm[0] < len(self.algorithms):
            raise AtlasError(
                f"there is no softmax algorithm number {algorithm[0]}",
                remedy=f"0 to {len(self.algorithms) - 1} stand for {', '.join(self.algorithms)}",
            )
        if algorithm == [DIRECT]:
            softmax = [softmax[0], max(softmax[1], 1), 0, 0, 0]
        elif 0 in softmax:
            used = softmax[: softmax.index(0)]
            softmax = used + [0] * (SOFTMAX_ITERATIONS - len(used))
        return (*softmax, *others, *algorithm)

    def to_dict(self) -> dict[str, str]:
        """The parametrisation as JSON values."""
        return asdict(self)


PAPER = Parametrisation()
"""The paper's search space."""
WIDE = Parametrisation("measured", "weighted", "powers", "any", "each")
"""All choices that make programs cheaper. A number of levels allows every degree below a power of
two, so other degrees help only if the predicted latency counts products."""
PRESETS = {"paper": PAPER, "wide": WIDE}
