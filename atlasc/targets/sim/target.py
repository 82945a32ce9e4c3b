"""The target ``sim``: cleartext slots that behave like ciphertexts, for tests and rehearsals.

Its parameter sets, costs and errors are those of ``desilo``, so that it shows what would be run.
Client and server may be rehearsed on it: folders of keys and files of ciphertexts have the places
and the checks of real ones, and each of them says that it hides nothing.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from atlasc.ir.module import Module
from atlasc.passes.lowering.rotation_keys import KeyPlan, rotation_reach
from atlasc.targets.base import Progress, Target, no_progress
from atlasc.targets.desilo.target import TARGET as desilo
from atlasc.targets.key_folders import check_keys, new_folder, write_bytes, write_index
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.sim.engine import SimEngine
from atlasc.targets.sim.roles import NOTE, SimRole


class SimTarget(Target):
    """A simulation, in this process or as client and server."""

    name = "sim"
    summary = "cleartext slots with levels and noise"
    encrypted = False
    parameters = desilo.parameters

    def cost_warning(self, costs: Path | None = None) -> str:
        """The warning of ``desilo``, whose costs these are."""
        return desilo.cost_warning(costs)

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
            noise=parameters.noise_model() if noise else None,
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
        write_index(server, "server", self.name, parameters, identity, plan, note=NOTE)
        write_bytes(client / "secret.key", f"{NOTE}\n".encode())
        write_index(client, "client", self.name, parameters, identity, note=NOTE)

    def client_engine(self, folder: Path, parameters: ParameterSet) -> SimRole:
        """See the base class."""
        return SimRole(parameters, check_keys(folder, "client", self.name, parameters))

    def server_engine(self, folder: Path, parameters: ParameterSet, plan: KeyPlan) -> SimRole:
        """See the base class."""
        return SimRole(parameters, check_keys(folder, "server", self.name, parameters, plan))


TARGET = SimTarget()
