"""Cleartext slots that behave like ciphertexts: exact, fast, no keys, and strict about levels.

This is the oracle of every test of the lowering, and the target ``sim`` of the command line. It
refuses what a real backend could not do, or would do silently wrong: a product at level 0, values
outside the range of a bootstrap, values that no longer fit the last modulus, a rotation for which
the plan has no key.

With a :class:`~atlasc.targets.noise.NoiseModel` each primitive adds the error that CKKS adds,
so that a program's precision can be judged in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.engine import Plaintext, Vector, refuse, refuse_at_level_zero
from atlasc.targets.noise import NoiseModel, coefficients, from_coefficients

Slots: TypeAlias = NDArray[Any]
"""float64, or complex128 within an op."""


class SimCiphertext:
    """Slots and the level at which they stand. Immutable by convention; use the engine."""

    __slots__ = ("level", "values")

    def __init__(self, values: Slots, level: int) -> None:
        self.values = values
        self.level = level

    def __repr__(self) -> str:
        return f"SimCiphertext(level={self.level}, slots={self.values.size})"


class SimEngine:
    """Implements :class:`~atlasc.passes.execution.engine.Engine` on float64 arrays.

    Args:
        slots: real numbers in a ciphertext, a power of two.
        max_level: levels of a fresh ciphertext.
        bootstrap_level: levels after a bootstrap; None when the parameters do not allow one.
        bootstrap_batch: ciphertexts that one bootstrap refreshes. Two become the parts of a complex
            one, so that an imaginary part of one of them spoils the other.
        noise: None computes exactly (in float64).
        seed: of the noise; the same program with the same seed gives the same result.
        bootstrap_range: largest absolute slot value that may enter a bootstrap.
        log_capacity: log2 of the largest absolute value that fits at level 0 (base modulus over
            scale, less a bit for the sign); each level adds ``log_scale`` bits.
        log_scale: log2 of the nominal scale.
        rotation_keys: amount -> highest level at which it may be used, as the plan of rotation
            keys has it; None allows every amount.
    """

    def __init__(
        self,
        slots: int = 32768,
        max_level: int = 38,
        bootstrap_level: int | None = None,
        *,
        bootstrap_batch: int = 1,
        noise: NoiseModel | None = None,
        seed: int = 0,
        bootstrap_range: float = 1.0,
        log_capacity: float = 19.0,
        log_scale: int = 40,
        rotation_keys: Mapping[int, int] | None = None,
    ) -> None:
        if slots < 1 or slots & (slots - 1):
            raise AtlasError(f"the number of slots must be a power of two, not {slots}")
        self.slots = slots
        self.max_level = max_level
        self.bootstrap_level = bootstrap_level
        self.bootstrap_batch = bootstrap_batch
        self.noise = noise
        self.bootstrap_range = bootstrap_range
        self.log_capacity = log_capacity
        self.log_scale = log_scale
        self.rotation_keys = (
            None
            if rotation_keys is None
            else {amount % slots: level for amount, level in rotation_keys.items()}
        )
        self._random = np.random.default_rng(seed)

    # --- in and out

    def encrypt(self, vector: Vector, level: int | None = None) -> SimCiphertext:
        """Encrypt at ``level``, by default at the top."""
        level = self.max_level if level is None else level
        if not 0 <= level <= self.max_level:
            refuse("encrypt", f"level {level} is not in 0..{self.max_level}")
        values = self._vector(vector, "encrypt").copy()
        return SimCiphertext(self._noisy(values, self.noise.fresh if self.noise else 0.0), level)

    def decrypt(self, ciphertext: SimCiphertext) -> Vector:
        """The slots.

        Raises:
            AtlasError: a value does not fit the modulus of its level: a real ciphertext would
                have wrapped around, and would decrypt to garbage.
        """
        largest = self._largest(ciphertext)
        bits = self.log_capacity + self.log_scale * ciphertext.level
        if not largest < 2.0 ** min(bits, 1000):
            refuse(
                "decrypt",
                f"a slot holds {largest:.3g}, but at level {ciphertext.level} only values below "
                f"2^{bits:.0f} fit",
                "a polynomial was evaluated outside its range: calibrate on more inputs",
            )
        return ciphertext.values.real.copy()

    def level(self, ciphertext: SimCiphertext) -> int:
        """Multiplications that are left."""
        return ciphertext.level

    # --- additions

    def add(self, left: SimCiphertext, right: SimCiphertext) -> SimCiphertext:
        """Sum, at the lower level."""
        return SimCiphertext(left.values + right.values, min(left.level, right.level))

    def sub(self, left: SimCiphertext, right: SimCiphertext) -> SimCiphertext:
        """Difference, at the lower level."""
        return SimCiphertext(left.values - right.values, min(left.level, right.level))

    def negate(self, ciphertext: SimCiphertext) -> SimCiphertext:
        """Negation, at the same level."""
        return SimCiphertext(-ciphertext.values, ciphertext.level)

    def add_plain(self, ciphertext: SimCiphertext, value: Vector | float) -> SimCiphertext:
        """Sum with a vector or a number, at the same level."""
        operand = self._plain(value, "add_plain")
        return SimCiphertext(ciphertext.values + operand, ciphertext.level)

    # --- products

    def mul(self, left: SimCiphertext, right: SimCiphertext) -> SimCiphertext:
        """Product, one below the lower level."""
        level = min(left.level, right.level)
        if level < 1:
            refuse_at_level_zero("mul")
        if self.noise is None:
            return SimCiphertext(left.values * right.values, level - 1)
        product = self._rescaled(left) * self._rescaled(right)
        return SimCiphertext(self._noisy(product, self.noise.key_switch), level - 1)

    def square(self, ciphertext: SimCiphertext) -> SimCiphertext:
        """Square, one level lower."""
        if ciphertext.level < 1:
            refuse_at_level_zero("square")
        if self.noise is None:
            return SimCiphertext(np.square(ciphertext.values), ciphertext.level - 1)
        values = np.square(self._rescaled(ciphertext))
        return SimCiphertext(self._noisy(values, self.noise.key_switch), ciphertext.level - 1)

    def dot(self, lefts: Sequence[SimCiphertext], rights: Sequence[SimCiphertext]) -> SimCiphertext:
        """Sum of products, one below the lowest level; relinearised once."""
        level = min(ciphertext.level for ciphertext in (*lefts, *rights))
        if level < 1:
            refuse_at_level_zero("dot")
        total = np.zeros(self.slots)
        for left, right in zip(lefts, rights, strict=True):
            total = total + self._rescaled(left) * self._rescaled(right)
        return self._switched(total, level - 1)

    def mul_plain(self, ciphertext: SimCiphertext, value: Plaintext) -> SimCiphertext:
        """Product with a vector or a number, one level lower."""
        if ciphertext.level < 1:
            refuse_at_level_zero("mul_plain")
        operand = self._plain(value, "mul_plain")
        return SimCiphertext(self._rescaled(ciphertext) * operand, ciphertext.level - 1)

    # --- the imaginary part

    def times_i(self, ciphertext: SimCiphertext) -> SimCiphertext:
        """i · x, at the same level."""
        return SimCiphertext(1j * ciphertext.values, ciphertext.level)

    def conjugate(self, ciphertext: SimCiphertext) -> SimCiphertext:
        """The complex conjugate, at the same level."""
        return self._switched(ciphertext.values.conj(), ciphertext.level)

    # --- rotations

    def rotate(self, ciphertext: SimCiphertext, amount: int) -> SimCiphertext:
        """Rotation to the left, at the same level."""
        amount %= self.slots
        if amount == 0:
            return ciphertext
        self._check_key(amount, ciphertext.level)
        values = ciphertext.values
        rolled = np.concatenate((values[amount:], values[:amount]))
        return self._switched(rolled, ciphertext.level)

    def rotate_many(self, ciphertext: SimCiphertext, amounts: Sequence[int]) -> list[SimCiphertext]:
        """One rotation to the left for each amount, hoisted."""
        # All results are windows into one array of twice the length: no copy for each.
        twice = np.concatenate((ciphertext.values, ciphertext.values))
        result = []
        for amount in amounts:
            amount %= self.slots
            if amount == 0:
                result.append(ciphertext)
                continue
            self._check_key(amount, ciphertext.level)
            window = twice[amount : amount + self.slots]
            result.append(self._switched(window, ciphertext.level))
        return result

    # --- levels

    def drop_to(self, ciphertext: SimCiphertext, level: int) -> SimCiphertext:
        """The same slots at a lower level."""
        if not 0 <= level <= ciphertext.level:
            refuse("drop_to", f"a ciphertext at level {ciphertext.level} has no level {level}")
        return SimCiphertext(ciphertext.values, level)

    def bootstrap(self, ciphertext: SimCiphertext) -> SimCiphertext:
        """The same slots at ``bootstrap_level``."""
        if self.bootstrap_level is None:
            refuse("bootstrap", "these parameters do not allow a bootstrap")
        largest = self._largest(ciphertext)
        # The tolerance lets a value of exactly the range pass with the noise of its history.
        if not largest <= self.bootstrap_range * (1 + 1e-6):
            refuse(
                "bootstrap",
                f"a slot holds {largest:.6g}, outside [-{self.bootstrap_range:g}, "
                f"{self.bootstrap_range:g}]: the result would be garbage",
                "scale the value down before the bootstrap, or calibrate its range again",
            )
        values = ciphertext.values.real
        if self.noise is not None:
            if self.noise.bootstrap_cubic:
                polynomial = coefficients(values)
                values = from_coefficients(polynomial - self.noise.bootstrap_cubic * polynomial**3)
            values = self._noisy(values, self.noise.bootstrap)
        return SimCiphertext(values, self.bootstrap_level)

    def bootstrap_many(self, ciphertexts: Sequence[SimCiphertext]) -> list[SimCiphertext]:
        """Two at a time as the parts of a complex one, the last of an odd number with itself."""
        if self.bootstrap_batch == 1:
            return [self.bootstrap(ciphertext) for ciphertext in ciphertexts]
        refreshed = []
        for first in range(0, len(ciphertexts), 2):
            pair = ciphertexts[first : first + 2]
            both = pair[0].values + 1j * pair[-1].values
            parts = (SimCiphertext(part, 0) for part in (both.real, both.imag))
            refreshed += [self.bootstrap(part) for part in parts]
        return refreshed[: len(ciphertexts)]

    # --- helpers

    def _noisy(self, values: Slots, deviation: float) -> Slots:
        if not deviation:
            return values
        return values + deviation * self._random.standard_normal(self.slots)

    def _rescaled(self, ciphertext: SimCiphertext) -> Slots:
        return self._noisy(ciphertext.values, self.noise.rescale if self.noise else 0.0)

    def _switched(self, values: Slots, level: int) -> SimCiphertext:
        return SimCiphertext(
            self._noisy(values, self.noise.key_switch if self.noise else 0.0), level
        )

    def _vector(self, value: Plaintext, primitive: str) -> Slots:
        vector = np.asarray(value, dtype=np.complex128 if np.iscomplexobj(value) else np.float64)
        if vector.shape != (self.slots,):
            refuse(primitive, f"a vector has {self.slots} slots, this one has shape {vector.shape}")
        return vector

    def _plain(self, value: Plaintext, primitive: str) -> Slots | float:
        return float(value) if isinstance(value, float | int) else self._vector(value, primitive)

    @staticmethod
    def _largest(ciphertext: SimCiphertext) -> float:
        values = ciphertext.values.real
        return float(max(values.max(), -values.min()))  # NaN stays NaN and fails every bound

    def _check_key(self, amount: int, level: int) -> None:
        if self.rotation_keys is None:
            return
        reach = self.rotation_keys.get(amount)
        if reach is None or reach < level:
            have = "there is no key" if reach is None else f"its key reaches only level {reach}"
            refuse("rotate", f"amount {amount} at level {level}: {have}", "plan the key")
