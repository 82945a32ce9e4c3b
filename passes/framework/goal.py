"""What the lowering knows of the target of a program: a parameter set and what its calls cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Parameters(Protocol):
    """What the lowering must know of a parameter set."""

    @property
    def slots(self) -> int:
        """Slots of a ciphertext."""

    @property
    def max_level(self) -> int:
        """Levels of a fresh ciphertext."""

    @property
    def bootstrap_level(self) -> int | None:
        """Levels after a bootstrap; None where there is none."""

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes."""

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """``error`` and ``cubic`` of `PlaceBootstraps`."""


ChooseParameters = Callable[[int, int], Parameters]
"""(levels of the whole program, least number of slots) to the cheapest parameter set."""


@dataclass(frozen=True)
class Goal:
    """What a program is lowered for.

    Attributes:
        parameters: the parameter set.
        costs: seconds of its primitives, see `PrimitiveCosts`. With them bootstraps are placed for
            the least predicted time, without them for the fewest bootstraps.
        fewest: with costs: the fewest bootstraps are wanted, and only then the least time.
    """

    parameters: Parameters
    costs: Mapping[tuple[Any, int], float] | None = None
    fewest: bool = False
