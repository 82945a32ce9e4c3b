"""Parameter sets of all targets: what they have in common, how one is chosen, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from atlasc.passes.costs.op_costs import PrimitiveCosts
from atlasc.passes.latency import LatencyTarget
from atlasc.targets.costs.fitted import Chain, FittedCosts
from atlasc.targets.desilo.costs import active_costs as desilo_costs
from atlasc.targets.desilo.parameters import DesiloParameters
from atlasc.targets.desilo.parameters import choose_parameters as choose_desilo
from atlasc.targets.noise import NoiseModel
from atlasc.targets.phantom.costs import active_costs as phantom_costs
from atlasc.targets.phantom.parameters import PhantomParameters
from atlasc.targets.phantom.parameters import choose_parameters as choose_phantom
from atlasc.targets.ring import Secret

PHANTOM = "phantom"


class ParameterSet(Chain, Protocol):
    """What compiling and running need to know of a set."""

    @property
    def slots(self) -> int:
        """Real numbers in a ciphertext."""
        ...

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes."""
        ...

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """Of a bootstrap: standard deviation in each slot, and factor of its cubic term."""
        ...

    @property
    def bootstrap_rotations(self) -> frozenset[int]:
        """Amounts, to the left, that need no key of the program's own."""
        ...

    @property
    def ring_degree(self) -> int:
        """N, twice the slots."""
        ...

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli."""
        ...

    @property
    def security_bits(self) -> int:
        """Of all its secrets: of the table for dense ones, and of estimates for sparse ones."""
        ...

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets of a key set, the client's own first."""
        ...

    @property
    def dnum(self) -> int:
        """Digits of the decomposition in a key switch at the top."""
        ...

    def ciphertext_bytes(self, level: int) -> int:
        """Size of a ciphertext at a level."""
        ...

    def key_bytes(self, level: int) -> int:
        """Size of a key that reaches a level."""
        ...

    def memory_parts(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
        live: Mapping[int, int] | None = None,
        constants: int = 0,
    ) -> dict[str, int]:
        """Peak memory of an execution in bytes, by what it is for."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """For a manifest."""
        ...


def read_parameters(target: str, data: Mapping[str, Any]) -> ParameterSet:
    """The set that a manifest of a target tells; ``sim`` has those of ``desilo``.

    Raises:
        AtlasError: the data are damaged.
    """
    kind = PhantomParameters if target == PHANTOM else DesiloParameters
    return kind.from_dict(data)


def choose(target: str, levels: int, slots: int) -> ParameterSet:
    """The cheapest set of a target; see its ``choose_parameters``."""
    if target == PHANTOM:
        return choose_phantom(levels, min_slots=slots)
    return choose_desilo(levels, min_slots=slots)


def costs_of(parameters: ParameterSet) -> FittedCosts[Any] | None:
    """Costs by the table in use; None where nobody measured them."""
    return phantom_costs() if isinstance(parameters, PhantomParameters) else desilo_costs()


def primitive_costs_of(parameters: ParameterSet) -> PrimitiveCosts | None:
    """Seconds of all primitives at all levels; None where nobody measured them."""
    costs = costs_of(parameters)
    return None if costs is None else costs.costs(parameters)


def relative_costs(parameters: ParameterSet) -> PrimitiveCosts:
    """The same, or where nobody measured them costs that can only be compared."""
    found = primitive_costs_of(parameters)
    if found is None:
        assert isinstance(parameters, PhantomParameters)
        return parameters.work()
    return found


def latency_target(target: str) -> LatencyTarget:
    """What the placement of bootstraps for a target looks at."""
    return LatencyTarget(partial(choose, target), relative_costs)


def noise_of(parameters: ParameterSet) -> NoiseModel:
    """The errors that the simulator adds in a set's stead."""
    if isinstance(parameters, PhantomParameters):
        return parameters.noise_model()
    return NoiseModel.ckks(parameters.ring_degree)
