"""Random polynomials and secrets, judged by their distributions.

Seeds are fixed, so that a test passes always or never. With other seeds, a sampler that is right
fails one of these tests with a probability below 1e-9, while a fault of one part in a hundred is
off by many standard deviations.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

LEAST = 1e-9
"""A probability that does not occur."""
DEGREE = 2**11
MODULI = 6
SEED = np.arange(1, 9, dtype=np.uint32)
"""Of the program."""


def chacha20(
    counters: np.ndarray, nonce: tuple[int, int, int], seed: np.ndarray = SEED
) -> np.ndarray:
    """Blocks of RFC 8439, [counter][word]; in other words than those of the engine."""
    start = np.empty((16, len(counters)), dtype=np.uint32)
    start[:4] = np.frombuffer(b"expand 32-byte k", dtype="<u4")[:, None]
    start[4:12] = seed[:, None]
    start[12] = counters
    start[13:] = np.array(nonce, dtype=np.uint32)[:, None]
    x = start.reshape(4, 4, -1).copy()

    def add_then_turn(a: int, b: int, d: int, bits: int) -> None:
        x[a] += x[b]
        x[d] ^= x[a]
        x[d] = x[d] << np.uint32(bits) | x[d] >> np.uint32(32 - bits)

    for diagonal in (False, True) * 10:
        for row in range(1, 4) if diagonal else ():
            x[row] = np.roll(x[row], -row, axis=0)
        for first, second in ((16, 12), (8, 7)):
            add_then_turn(0, 1, 3, first)
            add_then_turn(2, 3, 1, second)
        for row in range(1, 4) if diagonal else ():
            x[row] = np.roll(x[row], row, axis=0)
    blocks: np.ndarray = (x.reshape(16, -1) + start).T
    return blocks


def uniform(seed: np.ndarray, nonce: tuple[int, int, int], modulus: int, degree: int) -> list[int]:
    """A uniform polynomial: 128 bits of the generator modulo a prime, four residues a block."""
    blocks = chacha20(np.arange(0, degree, 4), nonce, seed)
    wide = (int.from_bytes(four.astype(">u4").tobytes(), "big") for four in blocks.reshape(-1, 4))
    return [one % modulus for one in wide]


def distributed(counts: np.ndarray, shares: np.ndarray) -> bool:
    """Whether counts are those of a distribution, by the chi-square test."""
    expected = shares / shares.sum() * counts.sum()
    rare = expected < 10
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return bool(stats.chisquare(counts, expected).pvalue > LEAST)


def independent(rows: np.ndarray) -> bool:
    """Whether numbers are uncorrelated: within their rows at any distance, and row by row."""
    rows = (rows - rows.mean()) / rows.std()
    size = rows.shape[1]
    spectra = np.abs(np.fft.rfft(rows, axis=1)) ** 2
    lags = np.fft.irfft(spectra.sum(axis=0))[1 : size // 2] / np.sqrt(rows.size)
    pairs = (rows @ rows.T / np.sqrt(size))[np.triu_indices(len(rows), 1)]
    return bool(np.abs(lags).max() < 8 and np.abs(pairs).max() < 8)  # standard deviations


Samples = Callable[..., np.ndarray]


@pytest.fixture(scope="module")
def samples(secrets: Callable[..., subprocess.CompletedProcess[bytes]]) -> Samples:
    def made(dtype: str, *arguments: object, **options: object) -> np.ndarray:
        done = secrets(*arguments, **options)
        assert done.returncode == 0, done.stderr
        return np.frombuffer(done.stdout, dtype)

    return made


def test_errors(samples: Samples) -> None:
    count = 1024
    all_limbs = samples("i1", "errors", count).reshape(count, MODULI, DEGREE)
    assert (all_limbs == all_limbs[:, :1]).all()  # one integer modulo every prime
    errors = all_limbs[:, 0]
    # 21 random bits against 21 others: -21 + the number of ones of 42 bits.
    law = stats.binom(42, 0.5)
    assert np.abs(errors).max() <= 21
    assert distributed(np.bincount(errors.ravel() + 21, minlength=43), law.pmf(np.arange(43)))
    numbers = errors.ravel().astype(float)
    root = np.sqrt(numbers.size)
    _, variance, _, kurtosis = (float(moment) for moment in law.stats("mvsk"))
    assert abs(numbers.mean()) < 6.5 * np.sqrt(variance) / root
    assert abs(numbers.var() / variance - 1) < 6.5 * np.sqrt(2 + kurtosis) / root
    assert abs(stats.skew(numbers)) < 6.5 * np.sqrt(6) / root
    assert abs(stats.kurtosis(numbers) - kurtosis) < 6.5 * np.sqrt(24) / root
    assert independent(errors)


def test_errors_are_those_of_the_generator(samples: Samples) -> None:
    *_, errors = samples("i1", "errors", 4).reshape(4, MODULI, DEGREE)[:, 0]
    blocks = chacha20(np.arange(DEGREE // 8), (3, 0, 2**31)) & np.uint32(2**21 - 1)
    ones = np.unpackbits(blocks.reshape(-1, 2, 1).view(np.uint8), axis=2).sum(axis=2).astype(int)
    assert (errors == ones[:, 0] - ones[:, 1]).all()


# Far below a power of two, where a modulus of too few random bits shows.
UNIFORM_MODULI = (3 * 2**61 + 1, 2**49 + 2**48 + 7, 5 * 2**30 + 3)


def test_uniform_polynomials(samples: Samples) -> None:
    count = 256
    words = samples("u8", "uniform", count, *UNIFORM_MODULI)
    words = words.reshape(count, len(UNIFORM_MODULI), DEGREE)
    for number, modulus in enumerate(UNIFORM_MODULI):
        residues = words[:, number]
        assert residues.max() < modulus
        bounds = [-(-modulus * at // 256) for at in range(257)]
        high = np.searchsorted(np.array(bounds[1:], dtype=np.uint64), residues, side="right")
        shares = np.diff(np.array(bounds, dtype=float))
        assert distributed(np.bincount(high.ravel(), minlength=256), shares)
        low = (residues % np.uint64(256)).astype(int)
        assert distributed(np.bincount(low.ravel(), minlength=256), np.ones(256))
    assert len(np.unique(words[:, 0])) == count * DEGREE
    assert independent((words / np.array(UNIFORM_MODULI)[:, None]).reshape(-1, DEGREE))


def test_uniform_polynomials_are_those_of_the_generator(samples: Samples) -> None:
    words = samples("u8", "uniform", 3, *UNIFORM_MODULI).reshape(3, -1, DEGREE)
    for number, modulus in enumerate(UNIFORM_MODULI):
        assert words[2, number].tolist() == uniform(SEED, (2, 0, number), modulus, DEGREE)


def test_ternary_secrets(samples: Samples) -> None:
    secrets = samples("i1", "ternary", 32).reshape(32, 2**16)
    assert set(np.unique(secrets)) == {-1, 0, 1}
    assert distributed(np.bincount(secrets.ravel() + 1), np.ones(3))
    assert independent(secrets)


def test_sparse_secrets(samples: Samples) -> None:
    weight, count = 32, 20_000
    signed = samples("i2", "sparse", count).astype(int)
    assert signed.size == weight * count  # the program refuses another weight
    places, signs = np.abs(signed) - 1, np.sign(signed)
    assert (np.diff(np.sort(places.reshape(count, weight))) > 0).all()
    # Places of one secret differ, so that counts vary a little less than those of free ones.
    expected = signed.size / DEGREE
    square = ((np.bincount(places, minlength=DEGREE) - expected) ** 2).sum() / expected
    assert stats.chi2.sf(square * (DEGREE - 1) / (DEGREE - weight), DEGREE - 1) > LEAST
    positive = np.bincount(places[signs > 0], minlength=DEGREE)
    assert stats.binomtest(int(positive.sum()), signed.size).pvalue > LEAST
    # A sign does not depend on its place.
    table = np.array([positive, np.bincount(places, minlength=DEGREE) - positive])
    assert stats.chi2_contingency(table).pvalue > LEAST
    assert independent(signs.reshape(-1, 1000))


@pytest.mark.parametrize(
    ("name", "entropy"), [("ternary", None), ("sparse", None), ("ternary", "9")]
)
def test_another_seed_makes_another_secret(
    samples: Samples, name: str, entropy: str | None
) -> None:
    first, second = samples("i1", name, 2, entropy=entropy).reshape(2, -1)
    third = samples("i1", name, 1, entropy=None)
    for one, other in ((first, second), (first, third), (second, third)):
        assert np.mean(one == other) < 0.5
