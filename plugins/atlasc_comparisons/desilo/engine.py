"""Real encryption on the CPU, with desilofhe 1.17.0.

This work uses the DESILO FHE library developed by DESILO Inc. (https://desilo.ai).

Measured behaviour of the library, and how this module uses it:

* A product of ciphertexts, or with a plaintext or a float, is relinearized and rescaled by the
  library and takes one level. A product with an ``int`` keeps the level, so numbers are passed as
  float.
* Ciphertexts stay at the squared scale until the next product, so a fresh one has an error of
  1e-15. The rescale before a product adds 1e-8 (N = 2^14) to 6e-8 (N = 2^16), absolutely, times the
  other factor. Rotations and additions are exact to 1e-15 at the squared scale, and to 1e-6 after a
  rescale: both forms are kept.
* A product rescales its operands each time, and transforms them (NTT) and the result back. With the
  rescaled form at hand a product with a number takes a twentieth of the time. With the rescaled and
  transformed form a product with a plaintext takes a tenth. The result then stays transformed,
  which all operations accept except a bootstrap, which gets the other form.
* ``rotate`` of the library rotates to the right; ``Engine`` rotates to the left.
* A *light* plaintext is encoded in milliseconds at any level, multiplies as fast and as precisely
  as a full one, and is the only kind used. A number is faster still.
* A key made at level l serves all levels up to l.
* ``merge_bootstrap`` refreshes two real ciphertexts at once, from any level.
* The library accepts NaN and infinity, which spoil all slots; this module refuses them.
* The library accepts a ciphertext of other parameters or other keys. Serialised ciphertexts
  therefore carry the identity of their key set, which is checked.

Sizes, seconds and errors are in docs/backend-desilo.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError, explained
from atlasc.program.engine import Plaintext, Vector
from atlasc.runtime.engine import RoleEngine
from atlasc_comparisons.desilo.keys import KeySet
from atlasc_comparisons.desilo.library import library_engine
from atlasc_comparisons.desilo.parameters import LARGE_PRIME_BITS, PRIME_BITS

LibraryCiphertext: TypeAlias = Any
"""``desilofhe.Ciphertext``; the library is imported lazily, so the type is not available here."""

_MAGIC = b"atlasct1"


@dataclass(slots=True, eq=False)
class DesiloCiphertext:
    """A ciphertext of the library, with the forms that it needs as a factor, once it was one.

    Attributes:
        raw: at the squared scale; for sums, rotations and files.
        rescaled: rescaled; for products with numbers.
        factor: rescaled and transformed; for products with vectors and ciphertexts.
    """

    raw: LibraryCiphertext
    rescaled: LibraryCiphertext | None = None
    factor: LibraryCiphertext | None = None

    @property
    def level(self) -> int:
        return int(self.raw.level)


class DesiloEngine(RoleEngine[DesiloCiphertext]):
    """An engine on real ciphertexts.

    Args:
        keys: keys of a server, of a client, or of both for a trial in one process.

    Raises:
        AtlasError: desilofhe is missing or of the wrong version.
    """

    target = "desilo"

    def __init__(self, keys: KeySet) -> None:
        super().__init__(*keys.parameters.shape)
        self.parameters = keys.parameters
        self.identity, self.has_secret = keys.identity, keys.secret is not None
        self._key_set = keys
        self._library = library_engine(keys.parameters)

    # --- in and out

    def _encrypt(self, vector: NDArray[Any], level: int) -> DesiloCiphertext:
        # The library accepts a number that is too large, and decrypts a wrong one.
        bits = LARGE_PRIME_BITS - 1 + PRIME_BITS * (level - 1)
        largest = float(np.abs(vector).max(initial=0.0))
        if not largest < 2.0 ** min(bits, 1000):
            self._refuse(
                "encrypt",
                f"a slot holds {largest:.3g}, but at level {level} only values below 2^{bits} fit",
                "scale the input down: it is far larger than the inputs of any program",
            )
        return DesiloCiphertext(self._library.encrypt(vector, self._key_set.secret, level=level))

    def decrypt(self, ciphertext: DesiloCiphertext) -> Vector:
        self._require_secret("decrypt")
        slots = self._library.decrypt(ciphertext.raw, self._key_set.secret)
        return np.asarray(slots).real.astype(np.float64)

    def serialize(self, ciphertext: DesiloCiphertext) -> bytes:
        """The bytes of a ciphertext: ``parameters.ciphertext_bytes(level)`` and a header."""
        payload = bytes(self._library.serialize_ciphertext(ciphertext.raw))
        return _MAGIC + bytes.fromhex(self.identity) + payload

    def deserialize(self, data: bytes) -> DesiloCiphertext:
        start = len(_MAGIC)
        end = start + len(self.identity) // 2
        if data[:start] != _MAGIC:
            raise AtlasError("this is not a ciphertext of the target desilo")
        self._require_identity(data[start:end].hex())
        with explained("this ciphertext is damaged"):
            return DesiloCiphertext(self._library.deserialize_ciphertext(data[end:]))

    # --- arithmetic

    def add(self, left: DesiloCiphertext, right: DesiloCiphertext) -> DesiloCiphertext:
        return DesiloCiphertext(self._library.add(*self._aligned(left, right)))

    def sub(self, left: DesiloCiphertext, right: DesiloCiphertext) -> DesiloCiphertext:
        return DesiloCiphertext(self._library.subtract(*self._aligned(left, right)))

    def negate(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        return DesiloCiphertext(self._library.negate(ciphertext.raw))

    def add_plain(self, ciphertext: DesiloCiphertext, value: Plaintext) -> DesiloCiphertext:
        plain = self._encoded(value, "add_plain")
        return DesiloCiphertext(self._library.add(ciphertext.raw, plain))

    def square(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        level = self._require_level("square", ciphertext)
        key = self._key("square", "relinearization", level)
        return DesiloCiphertext(self._library.square(self._factor(ciphertext), key))

    def _dot(
        self, lefts: Sequence[DesiloCiphertext], rights: Sequence[DesiloCiphertext], level: int
    ) -> DesiloCiphertext:
        key = self._key("a product", "relinearization", level)
        total = None
        for pair in zip(lefts, rights, strict=True):
            left, right = (self._factor(self.drop_to(factor, level)) for factor in pair)
            product = self._library.multiply(left, right)
            total = product if total is None else self._library.add(total, product)
        return DesiloCiphertext(self._library.relinearize(total, key))

    def mul_plain(self, ciphertext: DesiloCiphertext, value: Plaintext) -> DesiloCiphertext:
        self._require_level("mul_plain", ciphertext)
        plain = self._encoded(value, "mul_plain")
        if not isinstance(plain, float):
            return DesiloCiphertext(self._library.multiply(self._factor(ciphertext), plain))
        if ciphertext.rescaled is None:
            ciphertext.rescaled = self._library.rescale(ciphertext.raw)
        return DesiloCiphertext(self._library.multiply(ciphertext.rescaled, plain))

    def times_i(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        transformed = self._library.ntt(ciphertext.raw)  # halves the time
        return DesiloCiphertext(self._library.multiply_imaginary_integer(transformed, 1))

    def conjugate(self, ciphertext: DesiloCiphertext) -> DesiloCiphertext:
        key = self._key("conjugate", "conjugation", ciphertext.level)
        return DesiloCiphertext(self._library.conjugate(ciphertext.raw, key))

    def _rotate(self, ciphertext: DesiloCiphertext, amount: int) -> DesiloCiphertext:
        keys, name = self._keys("rotate"), f"rotation_{amount}"
        lacking = keys.reach(name) < ciphertext.level
        if lacking and "bootstrap" in keys.keys and amount in keys.parameters.needs.rotations:
            by: tuple[Any, ...] = keys.keys["bootstrap"], self.slots - amount  # to the right
        else:
            by = (self._key("rotate", name, ciphertext.level),)
        return DesiloCiphertext(self._library.rotate(ciphertext.raw, *by))

    def rotate_many(
        self, ciphertext: DesiloCiphertext, amounts: Sequence[int]
    ) -> list[DesiloCiphertext]:
        wanted = [amount % self.slots for amount in amounts]
        keys, level = self._keys("rotate_many"), ciphertext.level
        hoisted = sorted({n for n in wanted if keys.reach(f"rotation_{n}") >= level})
        if len(hoisted) == 1:
            hoisted = []
        done = {amount: self.rotate(ciphertext, amount) for amount in set(wanted) - set(hoisted)}
        if hoisted:
            batch = [keys.keys[f"rotation_{amount}"] for amount in hoisted]
            rotated = map(DesiloCiphertext, self._library.rotate_batch(ciphertext.raw, batch))
            done.update(zip(hoisted, rotated, strict=True))
        return [done[amount] for amount in wanted]

    def _drop_to(self, ciphertext: DesiloCiphertext, level: int) -> DesiloCiphertext:
        return DesiloCiphertext(self._library.level_down(ciphertext.raw, level=level))

    def _bootstrap(
        self, ciphertexts: Sequence[DesiloCiphertext], level: int, period: int
    ) -> list[DesiloCiphertext]:
        keys = self._keys("bootstrap").keys
        shared = [keys[name] for name in ("relinearization", "conjugation", "bootstrap")]
        bottom = [self._library.intt(self.drop_to(c, 0).raw) for c in ciphertexts]
        bottom += bottom[-1:] * (len(bottom) % 2)
        refreshed: list[LibraryCiphertext] = []
        for pair in zip(bottom[::2], bottom[1::2], strict=True):
            refreshed += self._library.merge_bootstrap(*pair, *shared)
        results = map(DesiloCiphertext, refreshed[: len(ciphertexts)])
        return [self.drop_to(one, level) for one in results]

    # --- helpers

    def _aligned(self, *operands: DesiloCiphertext) -> list[LibraryCiphertext]:
        level = min(operand.level for operand in operands)
        return [self.drop_to(operand, level).raw for operand in operands]

    def _factor(self, ciphertext: DesiloCiphertext) -> LibraryCiphertext:
        """The rescaled and transformed form."""
        if ciphertext.factor is None:
            rescaled = ciphertext.rescaled or self._library.rescale(ciphertext.raw)
            ciphertext.factor = self._library.ntt(rescaled)
        return ciphertext.factor

    def _vector(self, value: Any, primitive: str) -> NDArray[Any]:
        vector = super()._vector(value, primitive)
        if not np.isfinite(vector).all():
            self._refuse(primitive, "the vector holds NaN or infinity")
        return vector

    def _encoded(self, value: Plaintext, primitive: str) -> Any:
        """A number, or the library's plaintext of a vector."""
        plain = self._plain(value, primitive)
        if not isinstance(plain, float):
            return self._library.encode_to_light_plaintext(plain)
        if not np.isfinite(plain):
            self._refuse(primitive, f"the number is {plain}")
        return plain

    def _keys(self, primitive: str) -> KeySet:
        if self._key_set.plan is None:
            self._refuse(primitive, "this engine has the client's keys only", "use the server's")
        return self._key_set

    def _key(self, primitive: str, name: str, level: int) -> Any:
        """A key that serves a level."""
        keys, remedy = self._keys(primitive), "generate the keys for this program"
        if (reach := keys.reach(name)) < level:
            have = "there is no key" if reach < 0 else f"its key reaches only level {reach}"
            self._refuse(primitive, f"{name.replace('_', ' by ')} at level {level}: {have}", remedy)
        return keys.keys[name]
