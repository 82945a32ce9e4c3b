"""The target ``sim``: cleartext slots that behave like ciphertexts, for tests and rehearsals.

Its parameter sets, costs and errors are those of ``desilo``, so that it shows what would be run.
Client and server may be rehearsed on it: folders of keys and files of ciphertexts have the places
and the checks of real ones, and each of them says that it hides nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atlasc.ir.module import Module
from atlasc.passes.lowering.rotation_keys import KeyPlan, rotation_reach
from atlasc.targets.base import Progress, Target, no_progress
from atlasc.targets.desilo.costs import cost_doubts
from atlasc.targets.desilo.parameters import DesiloParameters, choose_parameters
from atlasc.targets.key_folders import check_keys, new_folder, write_bytes, write_index
from atlasc.targets.parameter_sets import ParameterSet, noise_of
from atlasc.targets.sim.engine import SimEngine
from atlasc.targets.sim.roles import NOTE, SimRole


class SimTarget(Target):
    """A simulation, in this process or as client and server."""

    name = "sim"
    summary = "cleartext slots with levels and noise"
    encrypted = False

    def choose_parameters(self, levels: int, slots: int = 1) -> DesiloParameters:
        """See the base class; a set of ``desilo``."""
        return choose_parameters(levels, min_slots=slots)

    def read_parameters(self, data: Mapping[str, Any]) -> DesiloParameters:
        """See the base class."""
        return DesiloParameters.from_dict(data)

    def has_costs(self) -> bool:
        """Those of ``desilo``."""
        return True

    def cost_doubts(self) -> list[str]:
        """See the base class."""
        return cost_doubts()

    def check(self) -> None:
        """It works everywhere."""

    def make_engine(
        self,
        program: Module,
        parameters: ParameterSet,
        progress: Progress = no_progress,
        *,
        noise: bool = False,
    ) -> SimEngine:
        """See the base class; there are no keys to make."""
        return SimEngine(
            parameters.slots,
            parameters.max_level,
            parameters.bootstrap_level,
            bootstrap_batch=parameters.bootstrap_batch,
            rotation_keys=rotation_reach(program, parameters.max_level),
            noise=noise_of(parameters) if noise else None,
        )

    def generate_keys(
        self,
        parameters: ParameterSet,
        plan: KeyPlan,
        client: Path,
        server: Path,
        progress: Progress = no_progress,
    ) -> None:
        """Write folders like those of real keys. ``secret.key`` holds words instead of a secret."""
        identity = secrets.token_hex(16)
        for folder in (client, server):
            new_folder(folder)
        write_index(
            server, "server", self.name, parameters, identity,
            note=NOTE,
            rotations={str(amount): level for amount, level in plan.rotations.items()},
            relinearization_level=plan.relinearization_level,
            conjugation_level=plan.conjugation_level,
        )  # fmt: skip
        write_bytes(client / "secret.key", f"{NOTE}\n".encode())
        write_index(client, "client", self.name, parameters, identity, note=NOTE)

    def client_engine(self, folder: Path, parameters: ParameterSet) -> SimRole:
        """See the base class."""
        return SimRole(parameters, check_keys(folder, "client", self.name, parameters))

    def server_engine(self, folder: Path, parameters: ParameterSet, plan: KeyPlan) -> SimRole:
        """See the base class."""
        return SimRole(parameters, check_keys(folder, "server", self.name, parameters, plan))


TARGET = SimTarget()
