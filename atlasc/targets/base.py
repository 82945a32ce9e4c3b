"""The base class of targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyTarget
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.program.engine import Engine
from atlasc.runtime.engine import RoleEngine
from atlasc.targets.cost_table import CostTable, active_table
from atlasc.targets.costs import costs_of
from atlasc.targets.key_folders import Role
from atlasc.targets.parameters import ParameterSet

if TYPE_CHECKING:
    from typing_extensions import Buffer

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""
Calibration = Callable[..., CostTable]
"""Measures the costs of primitives. Takes a ``progress``, called in hundredths of the expected
work; ``quick``: fewer parameter sets, levels and rounds; ``bootstrap``: measure one too; ``note``:
a remark to keep in the table. Raises AtlasError for too little memory."""


def no_progress(what: str, done: int, total: int) -> None:
    """The callback that says nothing."""


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

    def server_engine(
        self, evaluation: Buffer, parameters: ParameterSet, plan: KeyPlan
    ) -> RoleEngine[Any]:
        """The engine of a server from the bytes of ``evaluation.key``, which are not copied: a
        mapping of the file, for example.

        Raises:
            AtlasError: the target keeps its keys in a folder; else as :meth:`role_engine`.
        """
        raise AtlasError(
            f"the target {self.name} has no keys that are bytes",
            remedy="give the folder that atlasc keygen wrote",
        )

    def _not_in_python(self) -> AtlasError:
        self.check()
        return AtlasError(f"programs for the target {self.name} are not executed by Python")
