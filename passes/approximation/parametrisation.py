"""What the integers of a setting stand for: the switches that make a search space wider."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT

SOFTMAX_ITERATIONS = 5
SOFTMAX, FIRST_NORM, SECOND_NORM = tuple(range(SOFTMAX_ITERATIONS)), (5,), (6,)
ACTIVATION, ALGORITHM = (7,), (8,)
"""Positions among the integers of a layer; that of the algorithm only where layers may choose."""
LARGEST_SOFTMAX_DEGREE = 127
"""Of 1/sqrt in an iteration: the paper's exponents of a softmax end at 7."""

LADDERS: dict[str, tuple[int, ...]] = {
    "powers": tuple(2**p - 1 for p in range(1, 10)),
    "openfhe": (5, 13, 27, 59, 119, 247, 495),
    "any": (
        *(1, 2, 3, 5, 7, 9, 11, 13, 15, 19, 23, 27, 31, 39, 47, 55, 63),
        *(79, 95, 111, 127, 159, 191, 223, 255, 319, 383, 447, 511),
    ),
}
"""Degrees by name. `powers`: the most that p levels hold. `openfhe`: the most that OpenFHE
evaluates in 4 to 10 levels, domain map included. `any`: four steps for each level, for costs that
see the degree beside the levels."""

SOFTMAX_ALGORITHMS = (
    "iterative",
    "direct",
    "iterative, renormalised",
    "iterative, renormalised twice",
)
"""Of a softmax, in the order of the integer that chooses one."""

SWITCHES: dict[str, tuple[str, ...]] = {
    "softmax_ranges": ("paper", "measured"),
    "fits": ("interpolated", "weighted"),
    "degrees": tuple(LADDERS),
    "softmax_algorithms": ("iterative", "any"),
    "channels": ("shared", "each"),
}


@dataclass(frozen=True)
class Parametrisation:
    """What the integers of a layer's setting stand for, and the schema of its JSON form.

    Attributes:
        softmax_ranges: of an iterative softmax: "paper" for the paper's fixed ranges, "measured"
            for those of calibration, for each layer and each iteration.
        fits: "interpolated" at Chebyshev nodes, or "weighted" by the arguments that calibration
            saw, bounded on the whole range.
        degrees: name of the ladder of degrees; an integer i > 0 means its i-th rung.
        softmax_algorithms: "iterative", or "any": a ninth integer of each layer chooses among
            `algorithms`.
        channels: of an activation: one polynomial "shared" by all, or "each" its own, of one degree
            but on its own range.
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

    def degree(self, rung: int) -> int:
        """The degree that a positive integer of a setting stands for.

        Raises:
            AtlasError: the ladder has no such rung.
        """
        ladder = LADDERS[self.degrees]
        if not 1 <= rung <= len(ladder):
            raise AtlasError(
                f"there is no polynomial number {rung}",
                why=f"the degrees {self.degrees!r} are {', '.join(map(str, ladder))}",
                remedy=f"use an integer from 1 to {len(ladder)}",
            )
        return ladder[rung - 1]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The softmax algorithms that a layer may choose among."""
        return SOFTMAX_ALGORITHMS if self.softmax_algorithms == "any" else SOFTMAX_ALGORITHMS[:1]

    @property
    def variables(self) -> int:
        """Integers of a layer."""
        return len(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """What the integers of a layer are called."""
        names = ("p1", "p2", "p3", "p4", "p5", "norm 1", "norm 2", "activation")
        return names if len(self.algorithms) == 1 else (*names, "softmax algorithm")

    @property
    def lower(self) -> tuple[int, ...]:
        """Least integers of a layer."""
        lower = (1, 0, 0, 0, 0, 1, 1, 1)
        return lower if len(self.algorithms) == 1 else (*lower, 0)

    @property
    def upper(self) -> tuple[int, ...]:
        """Greatest integers of a layer."""
        ladder = LADDERS[self.degrees]
        softmax = sum(degree <= LARGEST_SOFTMAX_DEGREE for degree in ladder)
        upper = (*[softmax] * SOFTMAX_ITERATIONS, *[len(ladder)] * 3)
        return upper if len(self.algorithms) == 1 else (*upper, len(self.algorithms) - 1)

    def to_dict(self) -> dict[str, str]:
        """As JSON values."""
        return asdict(self)


PAPER = Parametrisation()
"""The paper's search space."""
WIDE = Parametrisation("measured", "weighted", "powers", "any", "each")
"""Everything that is known to be cheaper. A level buys any degree up to the next power of two, so
degrees between are of use only to a latency that counts products."""
PRESETS = {"paper": PAPER, "wide": WIDE}
