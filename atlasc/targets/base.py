"""The base class of targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.engine import Engine
from atlasc.program.key_plan import KeyPlan
from atlasc.runtime.engine import RoleEngine
from atlasc.targets.cost_table import CostTable, active_table
from atlasc.targets.key_folders import Role
from atlasc.targets.parameters import ParameterSet

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from atlasc.runtime.interface import Interface


Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total)."""
Calibration = Callable[..., CostTable]
"""Measures the costs of primitives and returns a cost table. Arguments: ``progress``, called in
hundredths of the expected work; ``quick``: fewer parameter sets, levels and rounds; ``bootstrap``:
also measure a bootstrap; ``note``: a remark to keep in the table. Raises AtlasError if there is too
little memory."""


def no_progress(what: str, done: int, total: int) -> None:
    """A callback that does nothing."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that an engine may use.

    Attributes:
        name: of its model.
        size: bytes of its memory.
    """

    name: str
    size: int


@dataclass(frozen=True)
class SentBytes:
    """Bytes of what a client sends and gets, exactly.

    Attributes:
        keys: the file of evaluation keys, which a client sends once.
        query, answer: of one run on as many inputs as a query has.
    """

    keys: int
    query: int
    answer: int


class Target:
    """A machine or library that runs compiled programs. Each module or folder here defines one.

    Attributes:
        name: name for ``--target``.
        summary: one line for the help text.
        encrypted: whether its ciphertexts hide their content.
        runtime_engine: engine of ``runtime_cuda`` that an emitted project links by default.
        writes_project: whether ``compile`` puts a C++ project into the bundle, because the target's
            device is seldom where a program is compiled.
        parameters: class of its parameter sets.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    encrypted: ClassVar[bool] = True
    runtime_engine: ClassVar[str] = "sim"
    writes_project: ClassVar[bool] = False
    parameters: ClassVar[type[ParameterSet]]

    # --- costs

    def has_costs(self, costs: Path | None = None) -> bool:
        """Whether the seconds of the primitives are known: from ``costs``, or the table in use."""
        return active_table(self.parameters.family, costs) is not None

    def cost_warning(self, costs: Path | None = None) -> str:
        """Why predicted times may be wrong here, and the remedy, in one line; empty if they are
        right.
        """
        return ""

    def calibration(self) -> Calibration:
        """The function that measures the costs of the primitives on this machine.

        Raises:
            AtlasError: the target has nothing to measure.
        """
        raise AtlasError(
            f"the target {self.name} has no primitives to measure",
            why="it encrypts nothing, and uses the predicted times of cpu",
            remedy="use --target cpu",
        )

    # --- execution

    def check(self) -> None:
        """Raise AtlasError, with the remedy, unless its programs can be executed here."""

    def check_role(self, role: Role) -> None:
        """Raise AtlasError, with the remedy, unless a role of its programs can work here."""
        self.check()

    def gpus(self) -> list[Gpu]:
        """The GPUs on which its programs are executed here; none where processors do it.

        Raises:
            AtlasError: as :meth:`check`.
        """
        return []

    @property
    def here(self) -> bool:
        """Whether its programs can be executed here."""
        try:
            self.check()
        except AtlasError:
            return False
        return True

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> Engine[Any]:
        """An engine that is client and server in one, with fresh keys if the target has keys.

        Args:
            program: ckks module with a plan of its keys.
            parameters: the parameter set of the program.
            progress: called before each key.
            noise: whether a simulator adds the errors of CKKS; real encryption always has errors.

        Raises:
            AtlasError: as :meth:`check`; the parameters belong to another target, or memory is too
                small.
        """
        self.check()
        raise AtlasError(f"programs for the target {self.name} are not executed by Python")

    def generate_keys(
        self, parameters: ParameterSet, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        """Make the keys of a program, and write each role's keys to its empty subfolder.

        Raises:
            AtlasError: as :meth:`check_role`; the parameters belong to another target; or there is
                too little memory or disk space.
        """
        raise self._no_roles()

    def role_engine(
        self, role: Role, folder: Path, parameters: ParameterSet, plan: KeyPlan | None = None
    ) -> RoleEngine[Any]:
        """The engine of a client, which encrypts and decrypts, or of a server, which executes
        programs and has no secret key.

        Args:
            role: client or server.
            folder: folder with the role's keys.
            parameters: the parameter set of the program.
            plan: for a server, the keys that the program needs.

        Raises:
            AtlasError: the keys are incomplete, damaged or open to other users; they belong to the
                other role, another target or other parameters; a key of the plan is missing; or
                memory is too small.
        """
        raise self._no_roles()

    def server_engine(
        self, evaluation: Buffer, parameters: ParameterSet, plan: KeyPlan
    ) -> RoleEngine[Any]:
        """The engine of a server from the bytes of ``evaluation.key``.

        The bytes are not copied: a memory mapping of the file will do.

        Raises:
            AtlasError: the target keeps its keys in a folder; otherwise as :meth:`role_engine`.
        """
        raise AtlasError(
            f"the target {self.name} cannot read its keys from bytes",
            remedy="give the folder that atlasc keygen wrote",
        )

    def sent_bytes(
        self,
        parameters: ParameterSet,
        plan: KeyPlan,
        interface: Interface,
        count: int | None = None,
    ) -> SentBytes | None:
        """Bytes of the files of a program, computed without making them; None where a target
        cannot tell. No engine of the target is needed.

        Args:
            parameters, plan: of the keys.
            interface: of the program.
            count: inputs of a query; by default a whole batch.
        """
        return None

    def _no_roles(self) -> AtlasError:
        self.check()
        return AtlasError(
            f"the target {self.name} has no client and no server of its own",
            remedy="use atlasc run, where one process is both",
        )
