"""Engines of the runtime library that encrypt, with their keys in two folders.

Keys and ciphertexts have the file formats of the C++ executables. ``evaluation.key`` has a seal, so
that a damaged file is refused. Every ciphertext carries the identity of its key pair, and a
checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import sha256_of
from atlasc.ir.module import Module
from atlasc.program.engine import Engine
from atlasc.program.function import EngineParameters
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.runtime.engine import NativeEngine
from atlasc.runtime.native import load_library, translated
from atlasc.targets.base import Progress, SentBytes, Target
from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.key_folders import Role, read_index, require_digest, write_index
from atlasc.targets.machine import require_disk, require_memory
from atlasc.targets.parameters import ParameterSet, require_set

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from atlasc.runtime.interface import Interface

SECRET, EVALUATION = "secret.key", "evaluation.key"
HOST = "cpu"
"""The library's engine on the processors; it makes the files of a client for all devices."""


class KeyedEngine(NativeEngine):
    """An engine with keys of its own.

    Args:
        parameters: parameter set of the program.
        native: ``Engine`` of the library.
        has_secret: whether the engine can encrypt and decrypt.

    Attributes:
        note: what a person must know of its keys.
        built_on: name of the library's engine, where that is not the target.
    """

    note: ClassVar[str] = ""
    built_on: ClassVar[str] = ""

    def __init__(self, parameters: CkksParameters, native: Any, *, has_secret: bool) -> None:
        circuit = parameters.circuit if parameters.bootstrap else None
        super().__init__(
            EngineParameters.of(parameters), native, has_secret=has_secret, circuit=circuit
        )
        self.parameters, self.bootstrap_from = parameters, parameters.bootstrap_from

    @classmethod
    def known_as(cls) -> str:
        """The name by which the library knows the engine."""
        return cls.built_on or cls.target

    @classmethod
    def of_client(cls, parameters: CkksParameters) -> str:
        """The library's engine that makes keys, encrypts and decrypts: for a GPU that of the
        processors, unless atlasc was installed without it.
        """
        return HOST if parameters.device and HOST in load_library().engines else cls.known_as()

    @classmethod
    def fresh(cls, parameters: CkksParameters, plan: KeyPlan, progress: Progress) -> Self:
        """Client and server in one, with new keys that stay in memory."""
        cls.require_room(parameters, plan)
        library = load_library()
        with translated():
            native = library.Engine.fresh(cls.known_as(), _facts(parameters, plan), _told(progress))
        return cls(parameters, native, has_secret=True)

    @classmethod
    def load(
        cls, role: Role, folder: Path, parameters: CkksParameters, plan: KeyPlan | None
    ) -> Self:
        """The engine of a role; see :meth:`atlasc.targets.base.Target.role_engine`."""
        index = read_index(folder, role, cls.target, parameters, plan)
        library, plan = load_library(), plan or index.plan
        facts = _facts(parameters, plan)
        with translated():
            if role == "client":
                name = cls.of_client(parameters)
                native = library.Engine.client(name, facts, str(folder / SECRET))
            else:
                cls.require_room(parameters, plan)
                require_digest(folder / EVALUATION, index.files.get(EVALUATION, ""))
                native = library.Engine.server(cls.known_as(), facts, str(folder / EVALUATION))
        if native.identity != index.identity:
            raise AtlasError(
                "this folder mixes keys of two key pairs",
                where=str(folder),
                why="keys.json names another pair than the file beside it",
                remedy="generate the keys again",
            )
        return cls(parameters, native, has_secret=role == "client")

    @classmethod
    def server(cls, evaluation: Buffer, parameters: CkksParameters, plan: KeyPlan) -> Self:
        """The engine of a server from the bytes of its keys; see
        :meth:`atlasc.targets.base.Target.server_engine`.
        """
        cls.require_room(parameters, plan)
        with translated():
            native = load_library().Engine.server(
                cls.known_as(), _facts(parameters, plan), memoryview(evaluation)
            )  # the library would take bytes for a path
        return cls(parameters, native, has_secret=False)

    @classmethod
    def generate_to(
        cls, parameters: CkksParameters, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        """Make the keys one after another; write them to ``client`` and ``server`` in ``folder``.

        Raises:
            AtlasError: there is too little disk space or memory.
        """
        require_disk(key_bytes(parameters, plan) // 2, folder, "the evaluation keys")
        library, facts = load_library(), _facts(parameters, plan)
        maker = cls.of_client(parameters)
        if maker == HOST:
            require_memory(generation_bytes(parameters, plan), "generating the keys")
        secret, evaluation = folder / "client" / SECRET, folder / "server" / EVALUATION
        with translated():
            library.write_keys(maker, facts, str(secret), str(evaluation), _told(progress))
            identity = library.Engine.client(maker, facts, str(secret)).identity
        told: dict[str, Any] = {
            "parameters": parameters, "identity": identity, "target": cls.target, "note": cls.note,
        }  # fmt: skip
        digests = {EVALUATION: sha256_of(evaluation)}
        write_index(folder, "server", **told, **plan.facts(), files=digests)
        write_index(folder, "client", **told)

    @classmethod
    def require_room(cls, parameters: CkksParameters, plan: KeyPlan) -> None:
        """Raise AtlasError unless memory suffices to execute an unknown program with these keys."""


def _facts(parameters: CkksParameters, plan: KeyPlan) -> Any:
    """Parameters and keys, for the library."""
    moduli, keys = parameters.moduli, parameters.needs.with_plan(plan)
    relinearisation, conjugation = keys.other_levels
    return load_library().Interface(
        slots=parameters.slots,
        max_level=parameters.max_level,
        bootstrap_level=parameters.bootstrap_level,
        bootstrap_batch=parameters.bootstrap_batch,
        primes=moduli.primes,
        special=moduli.special,
        scale=moduli.scale,
        log_scales=parameters.log_scales,
        rotations=keys.rotations,
        relinearisation_level=relinearisation,
        conjugation_level=conjugation,
        derivation=astuple(keys.derivation),
        engine=parameters.device,
    )


def key_bytes(parameters: CkksParameters, plan: KeyPlan) -> int:
    """Bytes of all evaluation keys of a program and its bootstraps in memory; files take half."""
    sizes = parameters.plan_memory(plan)
    return sum(size for name, size in sizes.items() if name.endswith("keys"))


def generation_bytes(parameters: CkksParameters, plan: KeyPlan) -> int:
    """Bytes of memory in which the keys are made, one after another, and written to files."""
    largest = parameters.key_bytes(len(parameters.moduli.primes) - 1)
    return parameters.plan_memory(plan)["library"] + 4 * largest


def _told(progress: Progress) -> Callable[[str, int, int], None]:
    """A callback that passes the library's names of keys on, in words."""
    return lambda name, made, total: progress(f"{name.replace('/', ' ')} key", made, total)


class KeyedTarget(Target):
    """A target whose roles have engines with keys of their own.

    Attributes:
        keyed: the engine of a role.
    """

    keyed: ClassVar[type[KeyedEngine]]

    def check(self) -> None:
        engines = load_library().engines
        if self.keyed.known_as() not in engines:
            raise AtlasError(
                f"atlasc has no engine for {self.name} here",
                why=f"it was installed with {' and '.join(engines)}",
                remedy=self._remedy(),
            )

    def _remedy(self) -> str:
        """What to do where atlasc was installed without the target's engine."""
        return f"install it again with ATLASC_ENGINE={self.runtime_engine} (docs/runtime.md)"

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> Engine[Any]:
        return self.keyed.fresh(self._required(parameters), key_plan(program), progress)

    def generate_keys(
        self, parameters: ParameterSet, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        self.keyed.generate_to(self._required(parameters, "client"), plan, folder, progress)

    def role_engine(
        self, role: Role, folder: Path, parameters: ParameterSet, plan: KeyPlan | None = None
    ) -> KeyedEngine:
        return self.keyed.load(role, folder, self._required(parameters, role), plan)

    def server_engine(
        self, evaluation: Buffer, parameters: ParameterSet, plan: KeyPlan
    ) -> KeyedEngine:
        return self.keyed.server(evaluation, self._required(parameters), plan)

    def sent_bytes(
        self,
        parameters: ParameterSet,
        plan: KeyPlan,
        interface: Interface,
        count: int | None = None,
    ) -> SentBytes:
        assert isinstance(parameters, CkksParameters)
        names, facts = (self.keyed.known_as(), self.keyed.target), _facts(parameters, plan)
        with translated():
            found = load_library().sent_bytes(*names, facts, interface, count or interface.batch)
        return SentBytes(*found)

    def _required(self, parameters: ParameterSet, role: Role = "server") -> CkksParameters:
        self.check_role(role)
        assert issubclass(self.parameters, CkksParameters)
        return require_set(parameters, self.parameters)
