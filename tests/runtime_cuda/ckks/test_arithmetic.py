"""Keys and ciphertexts of the engine, decrypted with integers of Python at N = 2^11.

Nothing here is the engine's: residues become integers by the Chinese remainder theorem, products
are those of large integers, and slots are values that numpy's Fourier transform finds. From the
engine come the primes, the scales, and the roots of unity at which it lists values.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from tests.runtime_cuda.ckks.test_samples import uniform

N = 2**11
HEADER = 32 + 16
"""Bytes of a ciphertext before its residues: identity, level, form, checksum."""
PACKED, SEEDED = 1, 2
"""Forms of a ciphertext: two parts; part 0, and the seed of part 1."""
GALOIS = {"rotated": pow(5, 5, 2 * N), "conjugated": 2 * N - 1}
Integers = list[int]
Residues = np.ndarray
"""Python's integers in an array: [..., N]."""


def dft(values: Residues, root: int, q: int) -> Residues:
    """sum over j of values[j] root^(jk), modulo q, along the last axis."""
    n = values.shape[-1]
    if n == 1:
        return values
    halves = dft(np.stack([values[..., ::2], values[..., 1::2]]), root * root % q, q)
    powers = [1]
    while len(powers) < n // 2:
        powers.append(powers[-1] * root % q)
    turned = halves[1] * np.array(powers, dtype=object) % q
    return np.concatenate([(halves[0] + turned) % q, (halves[0] - turned) % q], axis=-1)


@dataclass
class Limb:
    """Polynomials modulo X^N + 1 and one prime, by their values at some roots of unity."""

    q: int
    points: Integers

    @cached_property
    def powers(self) -> Integers:
        """Of a root psi of order 2N, all odd ones: psi^1, psi^3, ..."""
        psi = self.points[0]
        return list(
            itertools.accumulate([psi] + [psi * psi] * (N - 1), lambda a, b: a * b % self.q)
        )

    @cached_property
    def order(self) -> np.ndarray:
        """Where the values at these powers are listed."""
        place = {point: at for at, point in enumerate(self.points)}
        return np.array([place[power] for power in self.powers])

    @cached_property
    def twist(self) -> Residues:
        """psi^-k."""
        inverse = pow(self.points[0], -1, self.q)
        factors = itertools.accumulate([1] + [inverse] * (N - 1), lambda a, b: a * b % self.q)
        return np.array(list(factors), dtype=object)

    def coefficients(self, values: Residues) -> Residues:
        """c_k = psi^-k / N times the sum over j of value(psi^(2j + 1)) psi^(-2jk)."""
        root = pow(self.points[0], -2, self.q)
        return dft(values[self.order], root, self.q) * self.twist * pow(N, -1, self.q) % self.q

    def values(self, coefficients: Iterable[int]) -> Residues:
        """The value at every point: at psi^(2j + 1), sum over k of c_k psi^k psi^(2jk)."""
        untwist = np.array([pow(int(factor), -1, self.q) for factor in self.twist], dtype=object)
        twisted = np.array(list(coefficients), dtype=object) * untwist % self.q
        found = np.empty(N, dtype=object)
        found[self.order] = dft(twisted, pow(self.points[0], 2, self.q), self.q)
        return found


def composed(residues: Sequence[Residues], primes: Sequence[int]) -> Integers:
    """The integers of least size that have these residues."""
    product = int(np.prod(np.array(primes, dtype=object)))
    total = sum(
        residue * (product // q * pow(product // q, -1, q))
        for residue, q in zip(residues, primes, strict=True)
    )
    return [x if 2 * x < product else x - product for x in (int(x) % product for x in total)]


def product_of(a: Integers, b: Integers) -> Integers:
    """a b modulo X^N + 1, from one product of integers (Kronecker's substitution)."""
    width = (max(map(abs, a)).bit_length() + max(map(abs, b)).bit_length()) // 8 + 4

    def packed(numbers: Iterable[int]) -> int:
        return int.from_bytes(b"".join(x.to_bytes(width, "little") for x in numbers), "little")

    def whole(numbers: Integers) -> int:
        return packed(max(x, 0) for x in numbers) - packed(max(-x, 0) for x in numbers)

    # Half of a digit is added to each, so that none is negative.
    half = 1 << (8 * width - 1)
    text = (whole(a) * whole(b) + packed([half] * (2 * N))).to_bytes(2 * N * width + 1, "little")
    digits = [text[at : at + width] for at in range(0, 2 * N * width, width)]
    found = [int.from_bytes(digit, "little") - half for digit in digits]
    return [low - high for low, high in zip(found[:N], found[N:], strict=True)]


def at_power(polynomial: Integers, galois: int) -> Integers:
    """The polynomial at X^galois."""
    result = [0] * N
    for at, coefficient in enumerate(polynomial):
        place = at * galois % (2 * N)
        result[place % N] = coefficient if place < N else -coefficient
    return result


PLACES = np.array([(pow(5, slot, 2 * N) - 1) // 2 for slot in range(N // 2)])
"""Slot j is the value at exp(i pi 5^j / N)."""
TWIST = np.exp(1j * np.pi * np.arange(N) / N)


def slots_of(polynomial: Integers, scale: float) -> np.ndarray:
    coefficients = np.array([float(x) for x in polynomial]) / scale
    slots: np.ndarray = N * np.fft.ifft(coefficients * TWIST)[PLACES]
    return slots


def encoded(slots: np.ndarray, scale: float) -> Integers:
    values = np.empty(N, dtype=complex)
    values[PLACES] = slots
    values[N - 1 - PLACES] = np.conj(slots)
    return [round(x) for x in np.real(np.fft.fft(values) / N / TWIST) * scale]


def without_gaps(data: bytes, primes: Sequence[int]) -> list[Residues]:
    """Polynomials whose residues follow each other bit by bit, as many bits as their prime has."""
    bits, at, rows = np.unpackbits(np.frombuffer(data, "u1"), bitorder="little"), 0, []
    for size in (q.bit_length() for q in primes):
        row = bits[at : at + N * size].reshape(N, size).astype(object)
        rows.append(row @ np.array([1 << bit for bit in range(size)], dtype=object))
        at += N * size
    assert at == len(bits)
    return rows


class Engine:
    """What the program printed."""

    def __init__(self, output: bytes) -> None:
        self.arrays: dict[str, bytes] = {}
        while output:
            name, size, rest = output.split(b"\n", 2)
            self.arrays[name.decode()], output = rest[: int(size)], rest[int(size) :]
        self.primes: Integers = self.numbers("primes", "u8").tolist()
        points = self.numbers("points", "u8").reshape(-1, N).tolist()
        self.limbs = [Limb(q, row) for q, row in zip(self.primes, points, strict=True)]
        self.limbs_at: Integers = self.numbers("limbs", "u8").tolist()
        self.digits: Integers = self.numbers("digits", "u8").tolist()
        self.scales = self.numbers("scales", "f8")
        self.secret: Integers = self.numbers("secret", "i1").tolist()
        self.q = self.primes[: self.limbs_at[-1]]
        self.special = self.primes[len(self.q) :]

    def numbers(self, name: str, dtype: str) -> np.ndarray:
        return np.frombuffer(self.arrays[name], dtype)

    @cached_property
    def values_of_secret(self) -> list[Residues]:
        return [limb.values(self.secret) for limb in self.limbs]

    def parts(self, name: str) -> tuple[int, Integers, Integers]:
        """The level of a ciphertext and both parts, as integers."""
        data = self.arrays[f"ciphertext/{name}"]
        level, form = np.frombuffer(data[32:40], "i4").tolist()
        primes = self.primes[: self.limbs_at[level]]
        size = N * sum(q.bit_length() for q in primes) // 8
        rows = [without_gaps(data[HEADER:][:size], primes)]
        rest = data[HEADER + size :]
        if form == SEEDED:
            seed = np.frombuffer(rest, "u4")
            assert seed.size == 8
            rows.append(
                [
                    np.array(uniform(seed, (0, 0, number), q, N), dtype=object)
                    for number, q in enumerate(primes)
                ]
            )
        else:
            assert (form, len(rest)) == (PACKED, size)
            rows.append(without_gaps(rest, primes))
        first, second = (
            composed(
                [limb.coefficients(row) for limb, row in zip(self.limbs, part, strict=False)],
                primes,
            )
            for part in rows
        )
        return level, first, second

    def decrypted(self, name: str) -> tuple[int, Integers]:
        """The level, and c0 + c1 s."""
        level, c0, c1 = self.parts(name)
        modulus = self.modulus(level)
        sums = (a + b for a, b in zip(c0, product_of(c1, self.secret), strict=True))
        return level, [centred(x, modulus) for x in sums]

    def modulus(self, level: int) -> int:
        return int(np.prod(np.array(self.primes[: self.limbs_at[level]], dtype=object)))

    def key(self, name: str, count: int, special: int) -> list[list[Residues]]:
        """Both parts of each digit, [b, a, b, a, ...][limb], from their bits without gaps."""
        primes = self.q[:count] + self.special[:special]
        data, size = self.arrays[f"key/{name}"], N * sum(q.bit_length() for q in primes) // 8
        return [without_gaps(data[at : at + size], primes) for at in range(0, len(data), size)]


def centred(x: int, modulus: int) -> int:
    x %= modulus
    return x if 2 * x < modulus else x - modulus


def spread(numbers: Iterable[int]) -> float:
    return float(np.std(np.array([float(x) for x in numbers])))


DEEP = pytest.mark.deep("engines")


@pytest.fixture(
    scope="module",
    params=["host", *(pytest.param(name, marks=DEEP) for name in ("cuda", "phantom"))],
)
def engine(
    request: pytest.FixtureRequest, secrets: Callable[..., subprocess.CompletedProcess[bytes]]
) -> Engine:
    done = secrets("arithmetic", device=request.param)
    assert done.returncode == 0, done.stderr
    return Engine(done.stdout)


def test_products_of_polynomials_are_right() -> None:
    """Of this file, by the definition."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-(2**20), 2**20, (2, N)).tolist()
    a[0], b[0] = -(2**300), 2**300
    whole = np.convolve(np.array(a, dtype=object), np.array(b, dtype=object)).tolist() + [0]
    assert product_of(a, b) == [x - y for x, y in zip(whole[:N], whole[N:], strict=True)]


@pytest.mark.parametrize("name", ["first", "again", "second"])
def test_a_ciphertext_holds_the_message_and_a_small_error(engine: Engine, name: str) -> None:
    level, message = engine.decrypted(name)
    slots = engine.numbers("slots/first" if name == "again" else f"slots/{name}", "f8")
    scale = float(engine.scales[level])
    errors = [x - y for x, y in zip(message, encoded(slots, scale), strict=True)]
    assert max(map(abs, errors)) <= 21 + 1  # 1: two ways to round
    assert spread(errors) == pytest.approx(np.sqrt(10.5), rel=0.12)
    assert np.abs(slots_of(message, scale) - slots).max() < 1e-9


def test_a_fresh_ciphertext_has_a_seed_and_a_computed_one_has_not(engine: Engine) -> None:
    forms = {
        name.partition("/")[2]: int(np.frombuffer(data[36:40], "u4")[0])
        for name, data in engine.arrays.items()
        if name.startswith("ciphertext/")
    }
    fresh = dict.fromkeys(("first", "again", "second"), SEEDED)
    assert forms == fresh | dict.fromkeys(("product", "rotated", "conjugated"), PACKED)


def test_two_encryptions_share_nothing(engine: Engine) -> None:
    assert engine.arrays["ciphertext/first"][-32:] != engine.arrays["ciphertext/again"][-32:]
    (_, *first), (_, *again) = engine.parts("first"), engine.parts("again")
    for one, other in zip(first, again, strict=True):
        assert sum(x == y for x, y in zip(one, other, strict=True)) == 0
    messages = [engine.decrypted(name)[1] for name in ("first", "again")]
    difference = [x - y for x, y in zip(*messages, strict=True)]
    assert spread(difference) == pytest.approx(np.sqrt(2 * 10.5), rel=0.12)


@pytest.mark.parametrize("name", ["first", "product", "rotated", "conjugated"])
def test_the_engine_decrypts_the_same(engine: Engine, name: str) -> None:
    level, message = engine.decrypted(name)
    slots = slots_of(message, float(engine.scales[level]))
    assert np.abs(slots.real - engine.numbers(f"decrypted/{name}", "f8")).max() < 1e-12


def test_a_product(engine: Engine) -> None:
    """Relinearised and rescaled: over the prime of its level, with rounding alone as an error."""
    level, message = engine.decrypted("product")
    top, first = engine.decrypted("first")
    _, second = engine.decrypted("second")
    assert level == top - 1
    own = engine.modulus(top) // engine.modulus(level)
    exact = product_of(first, second)
    errors = [x - y / own for x, y in zip(message, exact, strict=True)]
    assert max(map(abs, errors)) < 100  # below 2^7, of 2^46
    slots = engine.numbers("slots/first", "f8") * engine.numbers("slots/second", "f8")
    assert np.abs(slots_of(message, float(engine.scales[level])) - slots).max() < 1e-9


@pytest.mark.parametrize("name", ["rotated", "conjugated"])
def test_an_automorphism(engine: Engine, name: str) -> None:
    level, message = engine.decrypted(name)
    top, first = engine.decrypted("first")
    assert level == top
    errors = [x - y for x, y in zip(message, at_power(first, GALOIS[name]), strict=True)]
    assert 0 < max(map(abs, errors)) < 100
    slots = engine.numbers("slots/first", "f8")
    expected = np.roll(slots, -5) if name == "rotated" else slots
    assert np.abs(slots_of(message, float(engine.scales[level])) - expected).max() < 1e-9


COPIES = 16
"""Those that a raised ciphertext may be the sum of."""


@dataclass
class Digit:
    """Of a key, opened: b + a s = e + P t."""

    mask: Residues
    """a, modulo the first prime."""
    error: Integers
    """e, from the special primes."""
    rest: list[Residues]
    """b + a s - e, modulo the primes of Q."""


def opened(
    engine: Engine, name: str, secret: Integers, count: int | None = None, special: int = 2
) -> list[Digit]:
    count = len(engine.q) if count is None else count
    limbs = [*engine.limbs[:count], *engine.limbs[len(engine.q) :][:special]]
    values = [limb.values(secret) for limb in limbs]
    parts = engine.key(name, count, special)
    digits = []
    for b, a in zip(parts[::2], parts[1::2], strict=True):
        rows = [
            limb.coefficients((x + y * s) % limb.q)
            for limb, x, y, s in zip(limbs, b, a, values, strict=True)
        ]
        error = composed(rows[count:], engine.special[:special])
        residues = np.array(error, dtype=object)
        rest = [(row - residues) % limb.q for row, limb in zip(rows[:count], limbs, strict=False)]
        digits.append(Digit(a[0], error, rest))
    return digits


def part_of(secret: Integers, number: int) -> Integers:
    """t of a secret that is the sum over numbers of X^number t(X^COPIES)."""
    result = [0] * N
    result[::COPIES] = secret[number::COPIES]
    return result


def test_keys_hold_one_secret_under_another(engine: Engine) -> None:
    """With small errors, each of them one integer modulo all primes, and all different."""
    secret = engine.secret
    q0, (p0, p1) = engine.q[0], engine.special
    backwards = at_power(secret, pow(GALOIS["rotated"], -1, 2 * N))
    to_dense = opened(engine, "to dense", secret)
    # The sparse secret leaves the engine in keys alone.
    sparse = [centred(int(x) * pow(p0 * p1, -1, q0), q0) for x in to_dense[0].rest[0]]
    assert sorted(map(abs, sparse)) == [0] * (N - 32) + [1] * 32
    assert {-1, 1} < set(sparse)
    [to_sparse] = opened(engine, "to sparse", sparse, 1, 1)
    assert (to_sparse.rest[0] == np.array(secret, dtype=object) * p0 % q0).all()

    [whole], parts = to_dense, opened(engine, "copies to dense", secret)
    assert len(parts) == COPIES
    # Of a raised ciphertext a digit is the same modulo all primes.
    for content, digit in [
        (sparse, whole),
        *((part_of(sparse, number), digit) for number, digit in enumerate(parts)),
    ]:
        for row, q in zip(digit.rest, engine.q, strict=True):
            assert (row == np.array(content, dtype=object) * (p0 * p1) % q).all()
    digits = [to_sparse, whole, *parts]
    for content, key in [
        (product_of(secret, secret), opened(engine, "relinearisation", secret)),
        (secret, opened(engine, "rotation/5", backwards)),
        (secret, opened(engine, "conjugation", at_power(secret, GALOIS["conjugated"]))),
    ]:
        assert len(key) == len(engine.digits) - 1
        for number, digit in enumerate(key):
            for limb, (row, q) in enumerate(zip(digit.rest, engine.q, strict=True)):
                own = engine.digits[number] <= limb < engine.digits[number + 1]
                assert (row == np.array(content, dtype=object) * (p0 * p1 * own) % q).all()
        digits += key

    errors = np.array([digit.error for digit in digits], dtype=float)
    assert np.abs(errors).max() <= 21
    assert errors.std() == pytest.approx(np.sqrt(10.5), rel=0.05)
    together = np.corrcoef(errors) - np.eye(len(errors))
    assert np.abs(together).max() < 8 / np.sqrt(N)  # standard deviations
    for one, other in itertools.combinations(digits, 2):
        assert (one.mask == other.mask).sum() == 0
