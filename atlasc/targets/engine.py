"""What the engines with slots do alike: roles, levels, and the checks of what they are given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.engine import (
    Ct,
    Engine,
    Plaintext,
    Vector,
    refuse,
    refuse_at_level_zero,
)


class SlotEngine(Engine[Ct]):
    """An engine but for its arithmetic: that is for a subclass.

    Methods with an underscore get operands that are checked. Ciphertexts have a ``level``. The
    engine of a client or a server alone refuses what takes the other's keys, and writes
    ciphertexts as bytes.

    Attributes:
        has_secret: whether it can encrypt and decrypt.
        identity: of the key set, 32 hexadecimal digits; every written ciphertext carries it.
    """

    has_secret = True
    identity = ""

    def __init__(
        self, slots: int, max_level: int, bootstrap_level: int | None, bootstrap_batch: int
    ) -> None:
        self.slots, self.max_level = slots, max_level
        self.bootstrap_level, self.bootstrap_batch = bootstrap_level, bootstrap_batch

    def encrypt(self, vector: Vector, level: int | None = None) -> Ct:
        self._require_secret("encrypt")
        level = self.max_level if level is None else level
        if not 0 <= level <= self.max_level:
            refuse("encrypt", f"level {level} is not in 0..{self.max_level}")
        return self._encrypt(self._vector(vector, "encrypt"), level)

    def level(self, ciphertext: Any) -> int:
        return int(ciphertext.level)

    @abstractmethod
    def serialize(self, ciphertext: Ct) -> bytes:
        """A ciphertext for a file or the wire."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Ct:
        """The inverse of :meth:`serialize`.

        Raises:
            AtlasError: not a ciphertext of this target, damaged, or made with other keys.
        """

    def mul(self, left: Ct, right: Ct) -> Ct:
        return self._product("mul", [left], [right])

    def dot(self, lefts: Sequence[Ct], rights: Sequence[Ct]) -> Ct:
        return self._product("dot", lefts, rights)

    def rotate(self, ciphertext: Ct, amount: int) -> Ct:
        amount %= self.slots
        return self._rotate(ciphertext, amount) if amount else ciphertext

    def drop_to(self, ciphertext: Ct, level: int) -> Ct:
        there = self.level(ciphertext)
        if not 0 <= level <= there:
            refuse("drop_to", f"a ciphertext at level {there} has no level {level}")
        return ciphertext if level == there else self._drop_to(ciphertext, level)

    def bootstrap(self, ciphertext: Ct) -> Ct:
        return self.bootstrap_many([ciphertext])[0]

    def bootstrap_many(self, ciphertexts: Sequence[Ct]) -> list[Ct]:
        """Two at a time where a bootstrap takes two, the last of an odd number with itself."""
        if self.bootstrap_level is None:
            refuse("bootstrap", "these parameters do not allow a bootstrap")
        return self._bootstrap(ciphertexts, self.bootstrap_level)

    # --- the arithmetic

    @abstractmethod
    def _encrypt(self, vector: NDArray[Any], level: int) -> Ct: ...

    @abstractmethod
    def _dot(self, lefts: Sequence[Ct], rights: Sequence[Ct], level: int) -> Ct:
        """``level`` is the lowest of them all."""

    @abstractmethod
    def _rotate(self, ciphertext: Ct, amount: int) -> Ct:
        """``amount`` is in 1..slots - 1."""

    @abstractmethod
    def _drop_to(self, ciphertext: Ct, level: int) -> Ct: ...

    @abstractmethod
    def _bootstrap(self, ciphertexts: Sequence[Ct], level: int) -> list[Ct]: ...

    # --- checks

    def _require_secret(self, primitive: str) -> None:
        if not self.has_secret:
            refuse(
                primitive,
                "this engine has evaluation keys only: the secret key never leaves the client",
                "use the client's folder",
            )

    def _require_level(self, primitive: str, *factors: Ct) -> int:
        level = min(map(self.level, factors))
        if level < 1:
            refuse_at_level_zero(primitive)
        return level

    def _product(self, primitive: str, lefts: Sequence[Ct], rights: Sequence[Ct]) -> Ct:
        return self._dot(lefts, rights, self._require_level(primitive, *lefts, *rights))

    def _vector(self, value: Plaintext, primitive: str) -> NDArray[Any]:
        dtype = np.complex128 if np.iscomplexobj(value) else np.float64
        vector = np.ascontiguousarray(value, dtype=dtype)
        if vector.shape != (self.slots,):
            refuse(primitive, f"a vector has {self.slots} slots, this one has shape {vector.shape}")
        return vector

    def _plain(self, value: Plaintext, primitive: str) -> NDArray[Any] | float:
        return float(value) if isinstance(value, float | int) else self._vector(value, primitive)

    def _require_identity(self, found: str) -> None:
        """Refuse a ciphertext of other keys than the engine's."""
        if found != self.identity:
            raise AtlasError(
                "this ciphertext was made with other keys",
                why=f"it belongs to {found[:8]}, the keys are {self.identity[:8]}",
                remedy="encrypt the input again with the client keys of this key set",
            )


def require_reach(primitive: str, key: str, reach: int, level: int, remedy: str) -> None:
    """Refuse a key switch at a level that its key does not reach; a reach of −1 says no key."""
    if reach < level:
        have = "there is no key" if reach < 0 else f"its key reaches only level {reach}"
        refuse(primitive, f"{key} at level {level}: {have}", remedy)
