"""Engines of client and server, whose ciphertexts travel; and engines of the runtime library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from threading import Lock
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Ct, Engine, Plaintext, Vector
from atlasc.program.function import EngineParameters, Function
from atlasc.program.plaintexts import Argument, Slots, Table
from atlasc.program.record import Recorder
from atlasc.program.record_arrays import Recorded, Recording, record_arrays
from atlasc.program.transform_work import TRANSFORMS, TransformTerm
from atlasc.runtime.native import load_library, translated

_IDENTITY = 32
"""Number of digits of a key pair's identity, with which every ciphertext's bytes begin."""

Ciphertext: TypeAlias = Any
"""``Ciphertext`` of the library, which is loaded on demand. It has a level."""


class RoleEngine(Engine[Ct]):
    """The engine of a client, of a server, or of both in a trial. The engine of one role refuses
    whatever needs the other role's keys.

    Attributes:
        target: name of the engine's target; files carry it.
        has_secret: whether the engine can encrypt and decrypt.
        identity: identity of the key set, 32 hexadecimal digits; every written ciphertext has it.
    """

    target: ClassVar[str]
    has_secret = True
    identity = ""

    def encrypt(self, vector: Vector | None, level: int | None = None) -> Ct:
        self._require_secret("encrypt")
        return super().encrypt(vector, level)

    @abstractmethod
    def serialize(self, ciphertext: Ct) -> bytes:
        """The bytes of a ciphertext, for a file or a message."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Ct:
        """The inverse of :meth:`serialize`.

        Raises:
            AtlasError: the bytes are no ciphertext of this target, damaged, or made with other
                keys.
        """

    def _require_secret(self, primitive: str) -> None:
        if not self.has_secret:
            self._refuse(
                primitive,
                "this engine has only evaluation keys: the secret key never leaves the client",
                "use the client's folder",
            )

    def _require_identity(self, found: str) -> None:
        """Refuse a ciphertext that was made with other keys than the engine's."""
        if found != self.identity:
            raise AtlasError(
                "this ciphertext was made with other keys",
                why=f"it belongs to the keys {found[:8]}, but these keys are {self.identity[:8]}",
                remedy="encrypt the input again with the client keys of this key set",
            )


class NativeEngine(RoleEngine[Ciphertext]):
    """An engine of the runtime library, which executes whole functions. It is safe for threads.

    Single primitives are for tests and measurements: each is executed as a function of one
    instruction, which the engine keeps for later calls of the same kind.

    Args:
        shape: shape of the parameters.
        native: ``Engine`` of the library.
        has_secret: whether the engine can encrypt and decrypt.
        circuit: for an engine whose bootstrap consists of functions: given a period, the functions
            that refresh slots that repeat after it. None if the library needs no functions.
    """

    def __init__(
        self,
        shape: EngineParameters,
        native: Any,
        *,
        has_secret: bool = True,
        circuit: Callable[[int], Sequence[Function]] | None = None,
    ) -> None:
        super().__init__(*shape)
        self._shape, self._native, self._circuit = shape, native, circuit
        # Refers to the number only: a reference cycle would keep the engine's keys in memory.
        self._slot_numbers = Table("slots", partial(np.arange, shape.slots))
        self.identity, self.has_secret = native.identity, has_secret
        self._lock, self._recording = Lock(), Recording()
        self._record = load_library().Record()
        self._stored: tuple[Recorded, Any] | None = None  # the last stored program
        self._names: dict[Function, str] = {}
        self._direct: dict[tuple[Any, ...], Function] = {}
        self._periods: set[int] = set()  # periods of the bootstraps that the library knows

    def settle(self, ciphertext: Ciphertext) -> None:
        """Do the relinearization and the rescale now that a product postponed."""
        self._call("settle", ciphertext)

    def wait(self) -> None:
        self._call("wait")

    # --- in and out

    def _encrypt(self, vector: NDArray[Any], level: int) -> Ciphertext:
        return self._call("encrypt", vector, level)

    def decrypt(self, ciphertext: Ciphertext) -> Vector:
        self._require_secret("decrypt")
        return np.asarray(self._call("decrypt", ciphertext), dtype=np.float64)

    def serialize(self, ciphertext: Ciphertext) -> bytes:
        return bytes(self._call("save", ciphertext))

    def deserialize(self, data: bytes) -> Ciphertext:
        found = data[:_IDENTITY].decode("ascii", "replace")
        if len(found) < _IDENTITY or not set(found) <= set("0123456789abcdef"):
            raise AtlasError(f"this is not a ciphertext of the target {self.target}")
        self._require_identity(found)
        return self._call("load", data)

    # --- functions

    def play(
        self,
        function: Function,
        operands: Sequence[Sequence[Ciphertext]],
        arrays: Sequence[NDArray[Any]] = (),
    ) -> list[Ciphertext]:
        return self._played(function, operands, arrays)

    def play_recorded(
        self,
        recorded: Recorded,
        name: str,
        operands: Sequence[Sequence[Ciphertext]],
        arrays: Sequence[NDArray[Any]] = (),
    ) -> list[Ciphertext]:
        return self._named(self._record_of(recorded), name, operands, arrays)

    def _record_of(self, recorded: Recorded) -> Any:
        """The library's record of a stored program; it has the functions of bootstraps too."""
        with self._lock:
            if self._stored is None or self._stored[0] is not recorded:
                record = load_library().Record()
                _add(record, recorded.arrays)
                self._native.bootstrap_by(record)
                self._stored = recorded, record
            return self._stored[1]

    def _played(
        self,
        function: Function,
        operands: Sequence[Sequence[Ciphertext]],
        arrays: Sequence[NDArray[Any]],
    ) -> list[Ciphertext]:
        return self._named(self._record, self._known(function), operands, arrays)

    def _named(
        self,
        record: Any,
        name: str,
        operands: Sequence[Sequence[Ciphertext]],
        arrays: Sequence[NDArray[Any]],
    ) -> list[Ciphertext]:
        given = [np.asarray(array, dtype=np.float64) for array in arrays]
        return list(self._call("play", record, name, given, list(map(list, operands))))

    def _known(self, function: Function) -> str:
        """The name of a function in the library's record; the function is added on its first
        use.
        """
        with self._lock:
            if function not in self._names:
                name = f"{function.name}#{len(self._names)}"
                _add(self._record, self._recording.added([function.named(name)]))
                for period in function.periods - self._periods:
                    self._learn(period)
                self._names[function] = name
            return self._names[function]

    def _learn(self, period: int) -> None:
        """Make the library able to bootstrap slots that repeat after ``period``."""
        if self._circuit is not None:
            record = load_library().Record()
            _add(record, record_arrays(self._circuit(period)))
            self._native.bootstrap_by(record)
        self._periods.add(period)

    # --- primitives

    def add(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        return self._once("add", [left, right])[0]

    def sub(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        return self._once("sub", [left, right])[0]

    def negate(self, ciphertext: Ciphertext) -> Ciphertext:
        return self._once("negate", [ciphertext])[0]

    def times_i(self, ciphertext: Ciphertext) -> Ciphertext:
        return self._once("times_i", [ciphertext])[0]

    def conjugate(self, ciphertext: Ciphertext) -> Ciphertext:
        return self._once("conjugate", [ciphertext])[0]

    def square(self, ciphertext: Ciphertext) -> Ciphertext:
        return self._once("square", [ciphertext])[0]

    def mul(self, left: Ciphertext, right: Ciphertext) -> Ciphertext:
        return self._once("mul", [left, right])[0]

    def add_plain(self, ciphertext: Ciphertext, value: Plaintext) -> Ciphertext:
        return self._once("add_plain", [ciphertext], values=[value])[0]

    def mul_plain(self, ciphertext: Ciphertext, value: Plaintext) -> Ciphertext:
        return self._once("mul_plain", [ciphertext], values=[value])[0]

    def dot_plain(
        self, ciphertexts: Sequence[Ciphertext], values: Sequence[Plaintext]
    ) -> Ciphertext:
        return self._once("dot_plain", ciphertexts, values=values)[0]

    def transform(
        self,
        ciphertexts: Sequence[Ciphertext],
        terms: Sequence[TransformTerm],
        chained: bool = False,
    ) -> list[Ciphertext]:
        numbers = [place for term in terms for place in term.places(self.slots)]
        values = [term.value for term in terms]
        return self._once(TRANSFORMS[chained], ciphertexts, numbers, values)

    def raise_modulus(self, ciphertext: Ciphertext, level: int, copies: int) -> Ciphertext:
        return self._once("raise_modulus", [ciphertext], [level, copies])[0]

    def rotate_sum(self, ciphertext: Ciphertext, amounts: Sequence[int]) -> Ciphertext:
        return self._once("rotate_sum", [ciphertext], list(amounts))[0]

    def rotate_many(self, ciphertext: Ciphertext, amounts: Sequence[int]) -> list[Ciphertext]:
        return self._once("rotate_many", [ciphertext], list(amounts)) if amounts else []

    def _rotate(self, ciphertext: Ciphertext, amount: int) -> Ciphertext:
        return self._once("rotate", [ciphertext], [amount])[0]

    def _dot(
        self, lefts: Sequence[Ciphertext], rights: Sequence[Ciphertext], level: int
    ) -> Ciphertext:
        return self._once("dot", [*lefts, *rights])[0]

    def _drop_to(self, ciphertext: Ciphertext, level: int) -> Ciphertext:
        return self._once("drop_to", [ciphertext], [level])[0]

    def _bootstrap(
        self, ciphertexts: Sequence[Ciphertext], level: int, period: int
    ) -> list[Ciphertext]:
        return self._once("bootstrap_many", ciphertexts, [period, level])

    def _once(
        self,
        primitive: str,
        ciphertexts: Sequence[Ciphertext],
        numbers: Sequence[int] = (),
        values: Sequence[Plaintext] = (),
    ) -> list[Ciphertext]:
        """The results of a primitive; its operands are those of one instruction."""
        plain = [self._plain(value, primitive) for value in values]
        kinds = tuple(one if isinstance(one, float) else one.dtype.kind for one in plain)
        key = (primitive, tuple(one.level for one in ciphertexts), tuple(numbers), kinds)
        if key not in self._direct:
            self._direct[key] = self._instruction(*key)
        arrays: list[NDArray[Any]] = []
        for value in plain:
            if not isinstance(value, float):
                arrays += (value.real, value.imag) if np.iscomplexobj(value) else (value,)
        # Not ``play``, because a subclass may execute functions by these primitives.
        return self._played(self._direct[key], [[one] for one in ciphertexts], arrays)

    def _instruction(
        self,
        primitive: str,
        levels: tuple[int, ...],
        numbers: tuple[int, ...],
        kinds: tuple[float | str, ...],
    ) -> Function:
        """The function of one primitive.

        ``kinds`` describes its plaintexts: a number for a number; "c" for a vector of complex
        numbers and "f" for one of real numbers. Vectors are arrays of the call.
        """
        recorder, roles = Recorder(self._shape), count()
        registers = [recorder.register(level) for level in levels]

        def vector() -> Slots:
            return Slots.of(Argument(f"{next(roles):06d}"), (self._slot_numbers, 0))

        plaintexts: list[Slots | float] = []
        for kind in kinds:
            if isinstance(kind, float):
                plaintexts.append(kind)
            else:
                plaintexts.append(vector() + vector() * 1j if kind == "c" else vector())
        results = recorder.call(primitive, registers, plaintexts, numbers)
        return Function(
            primitive,
            self._shape,
            tuple((level,) for level in levels),
            tuple(recorder.code),
            tuple(one.number for one in results),
            tuple(one.level for one in results),
        )

    def _call(self, method: str, *operands: Any) -> Any:
        with translated():
            return getattr(self._native, method)(*operands)


def _add(record: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Add functions, as arrays, to a record of the library."""
    with translated():
        record.add({name: array.tobytes() for name, array in arrays.items()})
