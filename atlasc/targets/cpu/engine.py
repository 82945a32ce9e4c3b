"""The engine of ``runtime_cuda`` in this process: ciphertexts, and the keys in two folders.

Keys and ciphertexts have the files of the C++ executables. ``evaluation.key`` has a seal, so that
a damaged one is refused; every ciphertext carries the identity of its key pair, and a checksum.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import sha256_of
from atlasc.passes.execution.engine import Plaintext, Vector
from atlasc.passes.execution.record_arrays import record_arrays
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.base import Progress, RoleEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.key_folders import Role, read_index, require_digest, write_index
from atlasc.targets.machine import require_disk, require_memory

SECRET, EVALUATION = "secret.key", "evaluation.key"
_IDENTITY = 32
"""Digits of the identity of a key pair; a ciphertext's bytes begin with them."""

CpuCiphertext: TypeAlias = Any
"""``Ciphertext`` of the C++ module, which is loaded when it is wanted. It has a level."""


def load_library() -> Any:
    """The C++ module.

    Raises:
        AtlasError: it was not built.
    """
    try:
        return importlib.import_module("atlasc.targets.cpu._engine")
    except ImportError as error:
        raise AtlasError(
            "the engine of the target cpu cannot be loaded",
            why=str(error),
            remedy="install atlasc again on this machine, with a C++17 compiler and make: the "
            "installation builds the engine",
        ) from None


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of the C++ module as AtlasError."""
    library = load_library()
    try:
        yield
    except library.Error as error:
        what, where, why, remedy = error.args
        raise AtlasError(what, where=where, why=why, remedy=remedy) from None


class CpuEngine(RoleEngine[CpuCiphertext]):
    """An engine on real ciphertexts. Several threads may use it; one at a time computes.

    Args:
        parameters: of the program.
        native: ``Engine`` of the C++ module.
        has_secret: whether it can encrypt and decrypt.
    """

    target = "cpu"

    def __init__(self, parameters: CpuParameters, native: Any, *, has_secret: bool) -> None:
        super().__init__(*parameters.shape)
        self.parameters, self._native = parameters, native
        self.identity, self.has_secret = native.identity, has_secret
        self._periods: set[int] = set()  # of bootstraps that the C++ module knows

    @classmethod
    def fresh(cls, parameters: CpuParameters, plan: KeyPlan, progress: Progress) -> CpuEngine:
        """Client and server in one, with new keys that stay in memory."""
        _require_room(parameters, plan)
        library = load_library()
        with _translated():
            native = library.Engine.fresh(*_facts(parameters, plan), _told(progress))
        return cls(parameters, native, has_secret=True)

    @classmethod
    def load(
        cls, role: Role, folder: Path, parameters: CpuParameters, plan: KeyPlan | None
    ) -> CpuEngine:
        """The engine of a role; see :meth:`atlasc.targets.base.Target.role_engine`."""
        index = read_index(folder, role, "cpu", parameters, plan)
        library, plan = load_library(), plan or index.plan
        with _translated():
            if role == "client":
                facts, _ = _facts(parameters, plan)
                native = library.Engine.client(facts, str(folder / SECRET))
            else:
                _require_room(parameters, plan)
                require_digest(folder / EVALUATION, index.files.get(EVALUATION, ""))
                native = library.Engine.server(*_facts(parameters, plan), str(folder / EVALUATION))
        if native.identity != index.identity:
            raise AtlasError(
                "this folder has the keys of two key pairs",
                where=str(folder),
                why="keys.json names another pair than the file beside it",
                remedy="generate the keys again",
            )
        return cls(parameters, native, has_secret=role == "client")

    def settle(self, ciphertext: CpuCiphertext) -> None:
        """Do now what a product put off: the relinearisation and the rescaling."""
        self._call("settle", ciphertext)

    # --- in and out

    def _encrypt(self, vector: NDArray[Any], level: int) -> CpuCiphertext:
        return self._call("encrypt", vector, level)

    def decrypt(self, ciphertext: CpuCiphertext) -> Vector:
        self._require_secret("decrypt")
        return np.asarray(self._call("decrypt", ciphertext), dtype=np.float64)

    def serialize(self, ciphertext: CpuCiphertext) -> bytes:
        return bytes(self._call("save", ciphertext))

    def deserialize(self, data: bytes) -> CpuCiphertext:
        found = data[:_IDENTITY].decode("ascii", "replace")
        if len(found) < _IDENTITY or not set(found) <= set("0123456789abcdef"):
            raise AtlasError("this is not a ciphertext of the target cpu")
        self._require_identity(found)
        return self._call("load", data)

    # --- arithmetic

    def add(self, left: CpuCiphertext, right: CpuCiphertext) -> CpuCiphertext:
        return self._call("add", left, right)

    def sub(self, left: CpuCiphertext, right: CpuCiphertext) -> CpuCiphertext:
        return self._call("sub", left, right)

    def negate(self, ciphertext: CpuCiphertext) -> CpuCiphertext:
        return self._call("negate", ciphertext)

    def add_plain(self, ciphertext: CpuCiphertext, value: Plaintext) -> CpuCiphertext:
        return self._call("add_plain", ciphertext, self._plain(value, "add_plain"))

    def square(self, ciphertext: CpuCiphertext) -> CpuCiphertext:
        self._require_level("square", ciphertext)
        return self._call("square", ciphertext)

    def _dot(
        self, lefts: Sequence[CpuCiphertext], rights: Sequence[CpuCiphertext], level: int
    ) -> CpuCiphertext:
        return self._call("dot", list(lefts), list(rights))

    def dot_plain(
        self, ciphertexts: Sequence[CpuCiphertext], values: Sequence[Plaintext]
    ) -> CpuCiphertext:
        self._require_level("mul_plain", *ciphertexts)
        plain = [self._plain(value, "mul_plain") for value in values]
        return self._call("dot_plain", list(ciphertexts), plain)

    def mul_plain(self, ciphertext: CpuCiphertext, value: Plaintext) -> CpuCiphertext:
        return self.dot_plain([ciphertext], [value])

    def times_i(self, ciphertext: CpuCiphertext) -> CpuCiphertext:
        return self._call("times_i", ciphertext)

    def conjugate(self, ciphertext: CpuCiphertext) -> CpuCiphertext:
        return self._call("conjugate", ciphertext)

    def rotate_many(self, ciphertext: CpuCiphertext, amounts: Sequence[int]) -> list[CpuCiphertext]:
        used = [amount % self.slots for amount in amounts]
        nonzero = [amount for amount in used if amount]
        rotated = iter(self._call("rotate_many", ciphertext, nonzero) if nonzero else ())
        return [next(rotated) if amount else ciphertext for amount in used]

    def _rotate(self, ciphertext: CpuCiphertext, amount: int) -> CpuCiphertext:
        return self._call("rotate_many", ciphertext, [amount])[0]

    def _drop_to(self, ciphertext: CpuCiphertext, level: int) -> CpuCiphertext:
        return self._call("drop_to", ciphertext, level)

    def _bootstrap(
        self, ciphertexts: Sequence[CpuCiphertext], level: int, period: int
    ) -> list[CpuCiphertext]:
        if period not in self._periods:
            arrays = record_arrays(self.parameters.circuit(period))
            self._call("bootstrap_by", {name: one.tobytes() for name, one in arrays.items()})
            self._periods.add(period)
        return list(self._call("bootstrap_many", list(ciphertexts), period))

    def _call(self, primitive: str, *operands: Any) -> Any:
        with _translated():
            return getattr(self._native, primitive)(*operands)


def generate_to(parameters: CpuParameters, plan: KeyPlan, folder: Path, progress: Progress) -> None:
    """Make the keys one after another, and write them to ``client`` and ``server`` in ``folder``.

    Raises:
        AtlasError: too little disk space or memory.
    """
    require_disk(key_bytes(parameters, plan) // 2, folder, "the evaluation keys")
    largest = parameters.key_bytes(len(parameters.moduli.primes) - 1)
    library_bytes = parameters.plan_memory(plan)["library"]
    require_memory(library_bytes + 4 * largest, "generating the keys")
    library = load_library()
    secret, evaluation = folder / "client" / SECRET, folder / "server" / EVALUATION
    with _translated():
        library.write_keys(*_facts(parameters, plan), str(secret), str(evaluation), _told(progress))
        identity = library.Engine.client(_facts(parameters, plan)[0], str(secret)).identity
    told: dict[str, Any] = {"parameters": parameters, "identity": identity, "target": "cpu"}
    digests = {EVALUATION: sha256_of(evaluation)}
    write_index(folder, "server", **told, **asdict(plan), files=digests)
    write_index(folder, "client", **told)


def _facts(parameters: CpuParameters, plan: KeyPlan) -> tuple[Any, Any]:
    """Parameters and keys of the C++ module."""
    library, moduli = load_library(), parameters.moduli
    facts = library.Parameters(
        slots=parameters.slots,
        max_level=parameters.max_level,
        bootstrap_level=parameters.bootstrap_level,
        bootstrap_batch=parameters.bootstrap_batch,
        primes=moduli.primes,
        special=moduli.special,
        scale=moduli.scale,
        log_scales=parameters.log_scales,
    )
    levels = plan.relinearization_level, plan.conjugation_level
    needs = parameters.needs
    given = [-1 if level is None else level for level in levels]
    given = list(map(max, given, needs.key_levels or given))
    return facts, library.Keys(needs.with_own(plan.rotations), *given)


def key_bytes(parameters: CpuParameters, plan: KeyPlan) -> int:
    """Of all evaluation keys of a program and its bootstraps, in memory; a file has half."""
    sizes = parameters.plan_memory(plan)
    return sum(size for name, size in sizes.items() if name.endswith("keys"))


def _told(progress: Progress) -> Callable[[str, int, int], None]:
    """A callback that is given the names of the C++ module."""
    return lambda name, made, total: progress(f"{name.replace('/', ' ')} key", made, total)


def _require_room(parameters: CpuParameters, plan: KeyPlan) -> None:
    """Raise AtlasError unless an unknown program can be executed with these keys."""
    require_memory(sum(parameters.plan_memory(plan).values()), "the evaluation keys")
