"""W times an encrypted matrix of coefficients, in NumPy: what ``benchmarks.engine.blas`` measures.

N coefficients of a polynomial of R = Z[X]/(X^N + 1) hold F = N/T features of T tokens: coefficient
j + F t is feature j of token t. So with Z = X^F a feature is an element of Z[Z]/(Z^T + 1). Under a
secret of a subring, in Y = X^c, a ciphertext (a, b) falls apart into c of degree n = N/c (every
c-th coefficient), and one of these into k = n/T *rows*. Row r has feature b_r and a mask of k
elements, of which the one beside the secret's part p is a_(r - p), or Z a_(r - p + k) if r < p. A
matrix W acts on rows, on masks and features alike, modulo any q. Then k key switches at once make
one ciphertext of F rows. Sources: Bae, Cheon, Hanrot, Park, Stehlé, CRYPTO 2024 (eprint 2024/1284,
arXiv 2503.16080): products of plaintexts and modules, by BLAS; Bae, Cheon, Kim, Park, Stehlé, 2023
(HERMES): rows into a ring. That the masks of k rows are shifts of one (``convolved``) is our use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Residues: TypeAlias = NDArray[np.uint64]
"""Integers modulo a power of two up to 2^64; sums and products wrap around."""
Polynomial: TypeAlias = NDArray[np.object_]
"""Integers from 0 to below a modulus, of any size."""


OUTPUTS = 64
"""Outputs at a time, so that what is computed of them stays in a core's cache."""


class Format(NamedTuple):
    """Degrees, and the modulus of the product.

    Attributes:
        degree, small: N and n, the degrees of the engine's ring and of its subring.
        tokens: T.
        log_q: log2 of the modulus of the product, which need not be prime.
    """

    degree: int
    small: int
    tokens: int
    log_q: int

    @property
    def pieces(self) -> int:
        """c: ciphertexts of the small degree in one of the engine's."""
        return self.degree // self.small

    @property
    def rank(self) -> int:
        """k: rows of one ciphertext of the small degree, and elements of a mask."""
        return self.small // self.tokens

    @property
    def features(self) -> int:
        """F: features in one ciphertext of the engine."""
        return self.degree // self.tokens

    def order(self, ciphertexts: int) -> NDArray[np.int64]:
        """The features in the order of rows: ciphertext, piece, row."""
        numbers = np.arange(ciphertexts * self.features)
        return numbers.reshape(ciphertexts, self.rank, self.pieces).swapaxes(1, 2).reshape(-1)


def quantised(weight: Floats, bits: int) -> tuple[Floats, float]:
    """The weight as integers of so many bits, sign included, and its scale."""
    scale = (2.0 ** (bits - 1) - 1) / np.abs(weight).max()
    return np.rint(weight * scale), float(scale)


def split(values: Residues, log_q: int, low: int) -> list[Floats]:
    """The low bits of residues, and what is above them if anything is; both with signs."""
    found = []
    for size in (low, log_q - low) if low < log_q else (low,):
        part = (values << np.uint64(64 - size)).view(np.int64) >> np.int64(64 - size)
        values = (values - part.view(np.uint64)) >> np.uint64(size)
        found.append(part.astype(float))  # one of over 53 bits is rounded
    return found


def joined(products: list[Floats], log_q: int, low: int) -> Residues:
    """The inverse of :func:`split` modulo q, for products of the parts ``[outputs, numbers]``."""
    total = np.zeros(products[0].shape, np.uint64)
    for place, product in zip((0, low), products, strict=False):
        modulus = 2.0 ** (log_q - place)
        for at in range(0, len(total), OUTPUTS):
            some = product[at : at + OUTPUTS]
            some = some - np.rint(some / modulus) * modulus  # exact: a power of two
            total[at : at + OUTPUTS] += some.astype(np.int64).view(np.uint64) << np.uint64(place)
    total &= np.uint64((1 << log_q) - 1)
    return total


def extended(masks: Floats, form: Format) -> Floats:
    """The 2k - 1 shifts that the masks of rows consist of: ``[pieces, small]`` -> ``[pieces, 2k -
    1, tokens]``, the shift by 1 - k first."""
    elements = masks.reshape(-1, form.tokens, form.rank).swapaxes(1, 2)
    turned = np.concatenate([-elements[..., -1:], elements[..., :-1]], axis=2)  # times Z
    return np.concatenate([turned[:, 1:], elements], axis=1)


def rows(masks: Floats, form: Format) -> Floats:
    """The masks of all rows: ``[pieces, small]`` -> ``[pieces * k, k * tokens]``."""
    k = np.arange(form.rank)
    return extended(masks, form)[:, k[:, None] - k + form.rank - 1].reshape(-1, form.small)


def dense(weight: Floats, masks: list[Floats], form: Format) -> list[Floats]:
    """``weight [outputs, pieces * k]`` times the masks of all rows, by one product a part."""
    return [weight @ rows(part, form) for part in masks]


def convolved(weight: Floats, masks: list[Floats], form: Format) -> list[Floats]:
    """The same as :func:`dense`. The masks of k rows are shifts of one element, so that W acts as k
    numbers on 2k - 1 of them: a correlation, by Fourier transforms of 2k points."""
    k, points = form.rank, 2 * form.rank
    spectra = []
    for part in masks:
        shifts = np.roll(np.pad(extended(part, form), ((0, 0), (0, 1), (0, 0))), 1 - k, axis=1)
        spectrum = np.moveaxis(np.fft.rfft(shifts, axis=1), 1, 0).conj()
        spectra.append(np.ascontiguousarray(spectrum))
    results = [np.empty((len(weight), form.small)) for _ in masks]
    for at in range(0, len(weight), OUTPUTS):
        some = weight[at : at + OUTPUTS]
        filters = np.moveaxis(np.fft.rfft(some.reshape(len(some), -1, k), points), 2, 0)
        filters = np.ascontiguousarray(filters)
        for result, spectrum in zip(results, spectra, strict=True):
            found = np.fft.irfft(filters @ spectrum, points, axis=0)[:k].swapaxes(0, 1)
            np.rint(found.reshape(len(some), -1), out=result[at : at + OUTPUTS])
    return results


class Way(NamedTuple):
    """How the product is computed.

    Attributes:
        name: for people.
        multiply: :func:`dense` or :func:`convolved`.
        low: bits of the low part of a residue, or of all of it. Sums of the high part must stay
            below 2^53. Those of the low part are rounded beyond that, which is an error as any
            other.
        weight_bits: bits of an entry of W, its sign included.
    """

    name: str
    multiply: Callable[[Floats, list[Floats], Format], list[Floats]]
    low: int
    weight_bits: int

    def product(self, weight: Floats, masks: Residues, bodies: Residues, form: Format) -> Rows:
        """``weight [outputs, features]``, of integers in the order of rows, times masks ``[pieces,
        small]`` and bodies ``[features, tokens]``."""
        log_q, low = form.log_q, self.low
        new = self.multiply(weight, split(masks, log_q, low), form)
        plain = [weight @ part for part in split(bodies, log_q, low)]
        return Rows(joined(new, log_q, low), joined(plain, log_q, low))


class Rows(NamedTuple):
    """Masks ``[features, small]`` and bodies ``[features, tokens]``."""

    masks: Residues
    bodies: Residues


def times(left: Polynomial, right: Polynomial, modulus: int) -> Polynomial:
    """The product of two polynomials modulo X^N + 1, as one product of two long integers."""
    degree = len(left)
    width = (2 * modulus.bit_length() + degree.bit_length() + 7) // 8

    def long(polynomial: Polynomial) -> int:
        return int.from_bytes(
            b"".join(int(x).to_bytes(width, "little") for x in polynomial), "little"
        )

    whole = (long(left) * long(right)).to_bytes(2 * degree * width, "little")
    found = [whole[at : at + width] for at in range(0, len(whole), width)]
    numbers = np.array([int.from_bytes(one, "little") for one in found], object)
    return (numbers[:degree] - numbers[degree:]) % modulus


RATIO = 10
"""log2 of the modulus by the scale of a message before the bootstrap."""


class Toy:
    """RLWE over integers of any size: secrets, and what is needed to check a format's product.

    Args:
        form: a small ring; it protects nothing.
        log_q0: log2 of the modulus before the bootstrap.
        log_special: log2 of the factor of the key to the small secret.
        digits: into how many digits its key switch cuts a mask.
        random: where secrets and errors come from.
    """

    def __init__(
        self, form: Format, log_q0: int, log_special: int, digits: int, random: np.random.Generator
    ) -> None:
        self.form, self.log_q0, self.log_special, self.digits = form, log_q0, log_special, digits
        self.random = random
        self.secret = self._ternary(form.degree)
        self.small = self._ternary(form.small)
        embedded = np.zeros(form.degree, object)
        embedded[:: form.pieces] = self.small
        modulus = 1 << (form.log_q + log_special)
        base = -(-form.log_q // digits)
        self.down = [
            self._encrypt(self.secret * (1 << log_special + at * base), embedded, modulus)
            for at in range(digits)
        ]
        parts = self.small.reshape(form.tokens, form.rank)
        self.up = []
        for part in parts.T:
            element = np.zeros(form.degree, object)
            element[:: form.features] = part
            self.up.append(self._encrypt(element * (1 << log_q0), self.secret, 1 << 2 * log_q0))

    def product(self, x: Floats, weight: Floats, way: Way) -> Floats:
        """``weight [outputs, features] @ x [features, tokens]`` by way of ciphertexts."""
        form = self.form
        integers, scale = quantised(weight, way.weight_bits)
        step = 2.0 ** (form.log_q - RATIO) / scale
        inputs = np.split(x, len(x) // form.features)
        pieces = [self._pieces(self._encrypted(one, step)) for one in inputs]
        masks, bodies = (np.concatenate(one) for one in zip(*pieces, strict=True))
        bodies = bodies.reshape(-1, form.tokens, form.rank).swapaxes(1, 2).reshape(-1, form.tokens)
        found = way.product(integers[:, form.order(len(inputs))], masks, bodies, form)
        results = [
            self._packed(Rows(*(one[at : at + form.features] for one in found)))
            for at in range(0, len(weight), form.features)
        ]
        return np.concatenate(results) / 2.0 ** (self.log_q0 - RATIO)

    def _encrypted(self, x: Floats, step: float) -> tuple[Polynomial, Polynomial]:
        message = np.rint(x.T * step).astype(np.int64).astype(object)
        return self._encrypt(message.reshape(-1), self.secret, 1 << self.form.log_q)

    def _pieces(self, ciphertext: tuple[Polynomial, Polynomial]) -> tuple[Residues, Residues]:
        """A key switch to the small secret; then every c-th coefficient."""
        (mask, body), form = ciphertext, self.form
        base = -(-form.log_q // self.digits)
        digits = [(mask >> at * base) & ((1 << base) - 1) for at in range(self.digits)]
        new_mask, change = self._switched(digits, self.down, form.log_q, self.log_special)
        whole = new_mask, (body + change) % (1 << form.log_q)
        first, second = (one.astype(np.uint64).reshape(form.small, -1).T for one in whole)
        return first, second

    def _packed(self, given: Rows) -> Floats:
        """Rows as one ciphertext at the modulus q0; its message, ``[features, tokens]``."""
        form, q0 = self.form, 1 << self.log_q0
        drop = form.log_q - self.log_q0
        mask, body = ((one.astype(object) + (1 << drop >> 1) >> drop) % q0 for one in given)
        elements = mask.reshape(form.features, form.rank, form.tokens)
        joint = [elements[:, at].T.reshape(-1) for at in range(form.rank)]
        new_mask, change = self._switched(joint, self.up, self.log_q0, self.log_q0)
        found = (body.T.reshape(-1) + change + times(new_mask, self.secret % q0, q0)) % q0
        centred = (found + q0 // 2) % q0 - q0 // 2
        return centred.astype(float).reshape(form.tokens, -1).T

    def _switched(
        self,
        masks: list[Polynomial],
        keys: list[tuple[Polynomial, Polynomial]],
        log_q: int,
        log_special: int,
    ) -> tuple[Polynomial, Polynomial]:
        """The sum of key switches, and one division by the factor of the keys."""
        modulus, half = 1 << (log_q + log_special), 1 << log_special >> 1

        def switched(side: int) -> Polynomial:
            total: Polynomial = np.zeros(self.form.degree, object)
            for mask, key in zip(masks, keys, strict=True):
                total += times(mask, key[side], modulus)
            return (total + half >> log_special) % (1 << log_q)

        return switched(0), switched(1)

    def _encrypt(
        self, message: Polynomial, secret: Polynomial, modulus: int
    ) -> tuple[Polynomial, Polynomial]:
        words = self.random.integers(0, 1 << 62, (3, len(message))).astype(object)
        mask = (words[0] + (words[1] << 62) + (words[2] << 124)) % modulus
        error = np.rint(self.random.normal(0, 3.2, len(message))).astype(np.int64).astype(object)
        return mask, (message + error - times(mask, secret % modulus, modulus)) % modulus

    def _ternary(self, degree: int) -> Polynomial:
        return self.random.integers(-1, 2, degree).astype(object)
