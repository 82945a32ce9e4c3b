"""The base classes of targets and of engines whose ciphertexts travel between two roles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.execution.engine import Ct, Engine, Vector
from atlasc.passes.latency.model import LatencyTarget
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.cost_table import CostTable, active_table
from atlasc.targets.costs import costs_of
from atlasc.targets.key_folders import Role
from atlasc.targets.parameters import ParameterSet

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""
Calibration = Callable[..., CostTable]
"""Measures the costs of primitives. Takes a ``progress``, called in hundredths of the expected
work; ``quick``: fewer parameter sets, levels and rounds; ``bootstrap``: measure one too; ``note``:
a remark to keep in the table. Raises AtlasError for too little memory."""


def no_progress(what: str, done: int, total: int) -> None:
    """The callback that says nothing."""


class RoleEngine(Engine[Ct]):
    """The engine of a client, of a server, or of both in a trial. One of a single role refuses what
    takes the other's keys.

    Attributes:
        target: whose engine it is; files name it.
        has_secret: whether it can encrypt and decrypt.
        identity: of the key set, 32 hexadecimal digits; every written ciphertext carries it.
    """

    target: ClassVar[str]
    has_secret = True
    identity = ""

    def encrypt(self, vector: Vector | None, level: int | None = None) -> Ct:
        self._require_secret("encrypt")
        return super().encrypt(vector, level)

    def _require_readable(
        self, primitive: str, slots: Vector, level: int, log_limit: float
    ) -> None:
        """Refuse slots that a decryption at ``level`` reads as other numbers: a coefficient beyond
        half of the modulus wraps around. ``log_limit``: log2 of what is too large."""
        largest = float(np.abs(slots).max(initial=0.0))
        if not largest < 2.0 ** min(log_limit, 1000):
            self._refuse(
                primitive,
                f"a slot holds {largest:.3g}, but at level {level} only values below "
                f"2^{log_limit:.0f} fit",
                "scale the input down: it is far larger than any that a program is made for"
                if primitive == "encrypt"
                else "a polynomial was evaluated outside its range: calibrate on more inputs",
            )

    @abstractmethod
    def serialize(self, ciphertext: Ct) -> bytes:
        """A ciphertext for a file or the wire."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Ct:
        """The inverse of :meth:`serialize`.

        Raises:
            AtlasError: not a ciphertext of this target, damaged, or made with other keys.
        """

    def _require_secret(self, primitive: str) -> None:
        if not self.has_secret:
            self._refuse(
                primitive,
                "this engine has evaluation keys only: the secret key never leaves the client",
                "use the client's folder",
            )

    def _require_identity(self, found: str) -> None:
        """Refuse a ciphertext of other keys than the engine's."""
        if found != self.identity:
            raise AtlasError(
                "this ciphertext was made with other keys",
                why=f"it belongs to {found[:8]}, the keys are {self.identity[:8]}",
                remedy="encrypt the input again with the client keys of this key set",
            )

    def _require_reach(self, primitive: str, key: str, reach: int, level: int, remedy: str) -> None:
        """Refuse a key switch at a level that its key does not reach; −1 says no key."""
        if reach < level:
            have = "there is no key" if reach < 0 else f"its key reaches only level {reach}"
            self._refuse(primitive, f"{key} at level {level}: {have}", remedy)


class Target:
    """What a compiled program runs on. Each module and each folder beside this file has one.

    Attributes:
        name: as in ``--target``.
        summary: one line for the help text.
        encrypted: whether its ciphertexts hide anything.
        runtime_engine: the engine of ``runtime_cuda`` that an emitted project links by default.
        writes_project: whether ``compile`` puts a C++ project into the bundle, because Python
            cannot execute the program.
        parameters: its parameter sets.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    encrypted: ClassVar[bool] = True
    runtime_engine: ClassVar[str] = "sim"
    writes_project: ClassVar[bool] = False
    parameters: ClassVar[type[ParameterSet]]

    # --- costs

    def latency(self, costs: Path | None = None) -> LatencyTarget:
        """Parameter sets and costs for the latency model and the placement of bootstraps.

        Args:
            costs: a cost table; None for the table in use.
        """

        def choose(levels: int, slots: int = 1) -> ParameterSet:
            return self.parameters.choose(levels, slots).costed_by(costs)

        return LatencyTarget(choose, costs_of)

    def has_costs(self, costs: Path | None = None) -> bool:
        """Whether seconds of its primitives are known, by a cost table or the table in use."""
        return active_table(self.parameters.family, costs) is not None

    def cost_warning(self, costs: Path | None = None) -> str:
        """Why predicted times may be wrong here, and the remedy, in one line; empty: nothing."""
        return ""

    def calibration(self) -> Calibration:
        """What measures the costs of the primitives on this machine.

        Raises:
            AtlasError: nothing can.
        """
        raise AtlasError(
            f"the target {self.name} has no primitives to measure",
            why="it encrypts nothing; its predicted times are those of cpu",
            remedy="use --target cpu",
        )

    # --- execution

    def check(self) -> None:
        """Raise AtlasError, with the remedy, unless its programs can be executed here."""

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> Engine[Any]:
        """An engine that plays client and server, with fresh keys where the target has keys.

        Args:
            program: ckks module with a plan of its keys.
            parameters: what it was compiled for.
            progress: called before each key.
            noise: a simulator adds the errors of CKKS; real encryption always has its own.

        Raises:
            AtlasError: as :meth:`check`; parameters of another target; too little memory.
        """
        raise self._not_in_python()

    def generate_keys(
        self, parameters: ParameterSet, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        """Make the keys of a program, and write those of a role to its subfolder, an empty one.

        Raises:
            AtlasError: as :meth:`make_engine`; too little space.
        """
        raise self._not_in_python()

    def role_engine(
        self, role: Role, folder: Path, parameters: ParameterSet, plan: KeyPlan | None = None
    ) -> RoleEngine[Any]:
        """The engine of a client, which encrypts and decrypts, or of a server, which executes
        programs and has no secret key.

        Args:
            role: whose engine.
            folder: the role's keys.
            parameters: of the program.
            plan: the keys that the program needs, of a server.

        Raises:
            AtlasError: the keys are incomplete, damaged, open to other users, the other role's, of
                another target or of other parameters; keys are missing; too little memory.
        """
        raise self._not_in_python()

    def _not_in_python(self) -> AtlasError:
        self.check()
        return AtlasError(f"programs for the target {self.name} are not executed by Python")
