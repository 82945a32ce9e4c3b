"""The target ``sim``: cleartext slots that behave like ciphertexts, for tests and rehearsals.

The runtime library has the engine. It is exact and fast, has no keys, and is strict about levels,
so every test of the lowering compares with it. It refuses whatever a real backend could not do, or
would silently do wrong: a product at level 0, values outside the range of a bootstrap, values that
no longer fit the last modulus, a rotation without a key in the plan. With a
:class:`~atlasc.targets.noise.NoiseModel` each primitive adds the error of CKKS, so that a program's
precision can be judged in milliseconds.

Parameter sets, costs and errors are those of ``cpu``, to show how the program would run. Client and
server may be rehearsed on it: its folders of keys and files of ciphertexts have the places and the
checks of real ones, and each of them says that it hides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.ir.module import Module
from atlasc.program.function import EngineParameters
from atlasc.program.rotation_plan import rotation_reach
from atlasc.runtime.engine import NativeEngine
from atlasc.runtime.native import load_library
from atlasc.targets.base import Progress
from atlasc.targets.ckks.engine import KeyedEngine, KeyedTarget
from atlasc.targets.cpu import TARGET as cpu
from atlasc.targets.noise import NoiseModel
from atlasc.targets.parameters import ParameterSet

if TYPE_CHECKING:
    pass

NOTE = "SIMULATION: nothing is encrypted; this hides nothing and protects nobody"
"""Note in every folder of keys."""


class SimEngine(NativeEngine):
    """Client and server in one.

    Args:
        slots, max_level, bootstrap_level: see :class:`~atlasc.program.engine.Engine`.
        bootstrap_batch: if this is 2, an imaginary part of one ciphertext spoils the other, as in a
            real bootstrap of two ciphertexts.
        noise: errors to add; None computes exactly (in float64).
        seed: seed of the noise; the same program with the same seed gives the same result.
        bootstrap_range: largest absolute slot value that may enter a bootstrap.
        rotation_keys: amount -> highest level at which its key may be used, as in the plan of
            rotation keys; None allows every amount.
    """

    target = "sim"

    def __init__(
        self,
        slots: int,
        max_level: int,
        bootstrap_level: int | None = None,
        bootstrap_batch: int = 1,
        *,
        noise: NoiseModel | None = None,
        seed: int = 0,
        bootstrap_range: float = 1.0,
        rotation_keys: Mapping[int, int] | None = None,
    ) -> None:
        shape = EngineParameters(slots, max_level, bootstrap_level, bootstrap_batch)
        keys = None if rotation_keys is None else dict(rotation_keys)
        native = load_library().Engine.simulated(*shape, keys, _noise(noise, seed), bootstrap_range)
        super().__init__(shape, native)


class SimRoleEngine(KeyedEngine):
    """A client or a server, with a key that protects nothing."""

    target = "sim"
    note = NOTE


def _noise(model: NoiseModel | None, seed: int) -> Any:
    """A noise model in the library's form."""
    noise = load_library().Noise()
    for one in fields(model) if model is not None else ():
        setattr(noise, one.name, getattr(model, one.name))
    noise.seed = seed
    return noise


class SimTarget(KeyedTarget):
    """A simulation, in this process or as client and server."""

    name = "sim"
    summary = "cleartext slots with levels and noise"
    encrypted = False
    parameters = cpu.parameters
    keyed = SimRoleEngine  # ``secret.key`` holds no secret

    def cost_warning(self, costs: Path | None = None) -> str:
        """The warning of ``cpu``, because the costs are those of ``cpu``."""
        return cpu.cost_warning(costs)

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> SimEngine:
        model = parameters.noise_model() if noise else None
        keys = rotation_reach(program, parameters.max_level)
        return SimEngine(*parameters.shape, noise=model, rotation_keys=keys)


TARGET = SimTarget()
