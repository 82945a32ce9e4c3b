"""Real encryption on the CPU, with desilofhe 1.17.0.

This work uses the DESILO FHE library developed by DESILO Inc. (https://desilo.ai).

What the library does, as measured, and what this module makes of it:

* A product of ciphertexts, or with a plaintext or a float, is relinearised and rescaled by itself
  and costs one level. A product with an ``int`` keeps the level: numbers are passed as float.
* Ciphertexts stay at the squared scale until the next product, so a fresh one has an error of
  1e-15; rescaling before a product adds 1e-8 (N = 2^14) to 6e-8 (N = 2^16), absolutely, times the
  other factor. Rotations and additions are exact to 1e-15.
* ``rotate`` turns to the right; the protocol turns to the left.
* A *light* plaintext is encoded in milliseconds at any level, multiplies as fast and as precisely
  as a full one, and is the only kind used. A number is faster still, and exact to 1e-13.
* A key made at level l serves all levels up to l, and its size grows with the square of l.
* At the library's top level a rotation loses a level; that level is not used (see
  :mod:`atlasc.backends.desilo_parameters`).
* A bootstrap adds 6e-6 (standard deviation; 3e-5 at worst) to any slots, from any level. It also
  bends each *coefficient* c of the encoded polynomial by 1.6e-3 c^3. The mean of the slots is one
  coefficient: a vector of ones comes back as 0.9984. Scale values to 1/4 or subtract their mean
  before. The noise model of the simulator has both.
* Values at level 0 must stay below 2^19; beyond, they wrap around and nothing tells.
* NaN and infinity are accepted by the library and spoil all slots; here they are refused.
* It accepts a ciphertext of other parameters or other keys. Serialised ciphertexts therefore carry
  the identity of their key set, which is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from atlasc.backends.desilo_keys import ClientKeys, EvaluationKeys, KeySet, generate_to
from atlasc.backends.desilo_library import library_engine
from atlasc.backends.desilo_parameters import (
    BOOTSTRAPPED,
    DesiloParameters,
    choose_parameters,
)
from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.engine import Vector

__all__ = [
    "BOOTSTRAPPED",
    "ClientKeys",
    "DesiloEngine",
    "DesiloParameters",
    "EvaluationKeys",
    "KeySet",
    "choose_parameters",
    "generate_to",
]

DesiloCiphertext: TypeAlias = Any
"""``desilofhe.Ciphertext``; the library is imported lazily, so the type is not available here."""

_MAGIC = b"atlasct1"


class DesiloEngine:
    """Implements :class:`~atlasc.passes.lowering.engine.Engine` on real ciphertexts.

    A server gives ``evaluation`` alone, a client ``client`` alone; whoever tries a program out in
    one process gives both.

    Args:
        evaluation: keys for products, rotations and bootstraps.
        client: the secret key, for :meth:`encrypt` and :meth:`decrypt`.

    Raises:
        AtlasError: neither is given, or they belong to different key sets; desilofhe is missing
            or of the wrong version.
    """

    def __init__(
        self, evaluation: EvaluationKeys | None = None, client: ClientKeys | None = None
    ) -> None:
        if evaluation and client and evaluation.identity != client.identity:
            raise AtlasError(
                "the keys of client and server do not belong together",
                why=f"client {client.identity[:8]}, server {evaluation.identity[:8]}",
                remedy="use the two folders that one key generation wrote",
            )
        keys = evaluation or client
        if keys is None:
            raise AtlasError("an engine needs keys", remedy="generate them with atlasc keygen")
        self.parameters = keys.parameters
        self.identity = keys.identity
        self.slots = self.parameters.slots
        self.max_level = self.parameters.max_level
        self.bootstrap_level = self.parameters.bootstrap_level
        self._evaluation = evaluation
        self._client = client
        self._library = library_engine(self.parameters)

    @classmethod
    def from_key_set(cls, keys: KeySet) -> DesiloEngine:
        """An engine that plays both roles."""
        return cls(keys.evaluation, keys.client)

    # --- in and out

    def encrypt(self, vector: Vector, level: int | None = None) -> DesiloCiphertext:
        """Encrypt at ``level``, by default at the top."""
        level = self.max_level if level is None else level
        if not 0 <= level <= self.max_level:
            self._fail("encrypt", f"level {level} is not in 0..{self.max_level}")
        values = self._vector(vector, "encrypt")
        return self._library.encrypt(values, self._secret("encrypt"), level=level)

    def decrypt(self, ciphertext: DesiloCiphertext) -> Vector:
        """The slots; needs the secret key."""
        slots = self._library.decrypt(ciphertext, self._secret("decrypt"))
        return np.asarray(slots).real.astype(np.float64)

    def level(self, ciphertext: DesiloCiphertext) -> int:
        """Multiplications that are left."""
        return int(ciphertext.level)

    def serialize(self, ciphertext: DesiloCiphertext) -> bytes:
        """For a file or the wire. Size: ``parameters.ciphertext_bytes(level)`` and a header."""
        payload = bytes(self._library.serialize_ciphertext(ciphertext))
        return _MAGIC + bytes.fromhex(self.identity) + payload

    def deserialize(self, data: bytes) -> DesiloCiphertext:
        """The inverse of :meth:`serialize`.

        Raises:
            AtlasError: not a ciphertext, damaged, or made with other keys.
        """
        start = len(_MAGIC)
        end = start + len(self.identity) // 2
        if data[:start] != _MAGIC:
            raise AtlasError("this is not a ciphertext of the target desilo")
        if data[start:end].hex() != self.identity:
            raise AtlasError(
                "this ciphertext was made with other keys",
                why=f"it belongs to {data[start:end].hex()[:8]}, the keys are {self.identity[:8]}",
                remedy="encrypt the input again with the client keys of this key set",
            )
        try:
            return self._library.deserialize_ciphertext(data[end:])
        except RuntimeError as error:
            raise AtlasError("this ciphertext is damaged", why=str(error)) from error

    # --- additions

    def add(self, left: DesiloCiphertext, right: DesiloCiphertext) -> DesiloCiphertext:
        """Sum, at the lower level."""
        return self._library.add(*self._aligned(left, right))

    def sub(self, left: DesiloCiphertext, right: DesiloCiphertext) -> DesiloCiphertext:
        """Difference, at the lower level."""
        return self._library.subtract(*self._aligned(left, right))

    def negate(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        """Negation, at the same level."""
        return self._library.negate(ciphertext)

    def add_plain(self, ciphertext: DesiloCiphertext, value: Vector | float) -> DesiloCiphertext:
        """Sum with a vector or a number, at the same level."""
        return self._library.add(ciphertext, self._plain(value, "add_plain"))

    # --- products

    def mul(self, left: DesiloCiphertext, right: DesiloCiphertext) -> DesiloCiphertext:
        """Product, one below the lower level."""
        left, right = self._aligned(left, right)
        key = self._relinearization("mul", left.level)
        return self._library.multiply(left, right, key)

    def square(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        """Square, one level lower."""
        key = self._relinearization("square", ciphertext.level)
        return self._library.square(ciphertext, key)

    def mul_plain(self, ciphertext: DesiloCiphertext, value: Vector | float) -> DesiloCiphertext:
        """Product with a vector or a number, one level lower."""
        if ciphertext.level < 1:
            self._underflow("mul_plain")
        return self._library.multiply(ciphertext, self._plain(value, "mul_plain"))

    # --- rotations

    def rotate(self, ciphertext: DesiloCiphertext, amount: int) -> DesiloCiphertext:
        """Rotation to the left, at the same level."""
        amount %= self.slots
        if amount == 0:
            return ciphertext
        keys = self._keys("rotate")
        if amount not in keys.rotations and keys.bootstrap is not None:
            right = self.slots - amount
            if right & (right - 1) == 0:  # the bootstrap key holds the powers of two
                return self._library.rotate(ciphertext, keys.bootstrap, right)
        return self._library.rotate(ciphertext, self._rotation(amount, ciphertext.level))

    def rotate_many(
        self, ciphertext: DesiloCiphertext, amounts: Sequence[int]
    ) -> list[DesiloCiphertext]:
        """One rotation to the left for each amount, hoisted."""
        wanted = [amount % self.slots for amount in amounts]
        keys = self._keys("rotate_many")
        hoisted = sorted({amount for amount in wanted if amount in keys.rotations})
        done = {amount: self.rotate(ciphertext, amount) for amount in set(wanted) - set(hoisted)}
        if len(hoisted) == 1:
            done[hoisted[0]] = self.rotate(ciphertext, hoisted[0])
        elif hoisted:
            batch = [self._rotation(amount, ciphertext.level) for amount in hoisted]
            done.update(zip(hoisted, self._library.rotate_batch(ciphertext, batch), strict=True))
        return [done[amount] for amount in wanted]

    # --- levels

    def drop_to(self, ciphertext: DesiloCiphertext, level: int) -> DesiloCiphertext:
        """The same slots at a lower level."""
        if not 0 <= level <= ciphertext.level:
            self._fail("drop_to", f"a ciphertext at level {ciphertext.level} has no level {level}")
        if level == ciphertext.level:
            return ciphertext
        return self._library.level_down(ciphertext, level=level)

    def bootstrap(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        """The same slots at ``bootstrap_level``."""
        if self.bootstrap_level is None:
            self._fail("bootstrap", "these parameters do not allow a bootstrap")
        keys = self._keys("bootstrap")
        return self._library.bootstrap(
            self.drop_to(ciphertext, 0), keys.relinearization, keys.conjugation, keys.bootstrap
        )

    # --- helpers

    def _aligned(self, left: DesiloCiphertext, right: DesiloCiphertext) -> tuple[Any, Any]:
        level = min(left.level, right.level)
        return self.drop_to(left, level), self.drop_to(right, level)

    def _vector(self, value: Vector, primitive: str) -> Vector:
        vector = np.ascontiguousarray(value, dtype=np.float64)
        if vector.shape != (self.slots,):
            self._fail(
                primitive, f"a vector has {self.slots} slots, this one has shape {vector.shape}"
            )
        if not np.isfinite(vector).all():
            self._fail(primitive, "the vector holds NaN or infinity")
        return vector

    def _plain(self, value: Vector | float, primitive: str) -> Any:
        if np.ndim(value):
            vector = self._vector(np.asarray(value), primitive)
            return self._library.encode_to_light_plaintext(vector)
        number = float(value)
        if not np.isfinite(number):
            self._fail(primitive, f"the number is {number}")
        return number

    def _secret(self, primitive: str) -> Any:
        if self._client is None:
            self._fail(
                primitive,
                "this engine has evaluation keys only: the secret key never leaves the client",
                "use the client's folder",
            )
        return self._client.secret

    def _keys(self, primitive: str) -> EvaluationKeys:
        if self._evaluation is None:
            self._fail(primitive, "this engine has the client's keys only", "use the server's")
        return self._evaluation

    def _relinearization(self, primitive: str, level: int) -> Any:
        if level < 1:
            self._underflow(primitive)
        keys = self._keys(primitive)
        reach = keys.relinearization_level
        if keys.relinearization is None or reach is None or reach < level:
            self._fail(
                primitive,
                f"the operands are at level {level}, the relinearisation key reaches {reach}",
                "generate the keys for this program",
            )
        return keys.relinearization

    def _rotation(self, amount: int, level: int) -> Any:
        keys = self._keys("rotate")
        reach = keys.rotation_levels.get(amount)
        if reach is None or reach < level:
            have = "there is no key" if reach is None else f"its key reaches only level {reach}"
            self._fail(
                "rotate",
                f"amount {amount} at level {level}: {have}",
                "generate the keys for this program",
            )
        return keys.rotations[amount]

    def _underflow(self, primitive: str) -> NoReturn:
        self._fail(
            primitive,
            "the operand is at level 0: no multiplication is left",
            "place a bootstrap before it, or choose parameters with more levels",
        )

    @staticmethod
    def _fail(primitive: str, why: str, remedy: str = "") -> NoReturn:
        raise AtlasError(f"{primitive} is impossible", why=why, remedy=remedy)
