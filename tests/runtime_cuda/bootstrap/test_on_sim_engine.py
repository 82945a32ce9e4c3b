"""The bootstrap written against the engine interface, on the simulation engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ckks_ring import Complexes, Reals, polynomial_of, raised, slots_of

from atlasc.targets.phantom.bootstrap import dry_run

SCALE_BITS, WEIGHT = 46, 32


@pytest.fixture(scope="session")
def program(build: Callable[..., Path]) -> Path:
    return build("on_sim_engine")


def run(
    program: Path, slots: Complexes, base_bits: int, *fit: object
) -> tuple[subprocess.CompletedProcess[bytes], Complexes]:
    words = [str(program), *map(str, (2 * slots.size, base_bits, *fit))]
    done = subprocess.run(words, input=slots.tobytes(), capture_output=True)
    return done, np.frombuffer(done.stdout, complex)


@pytest.mark.parametrize(
    ("base_bits", "fit", "levels", "error"),
    [
        (57, (127, 0, 1), 3 + 7 + 3, 2.0**-19),
        (57, (63, 2, 1), 3 + 8 + 3, 2.0**-19),
        (52, (127, 0, 3), 3 + 9 + 3, 2.0**-17),
        (52, (63, 2, 5), 3 + 11 + 3, 2.0**-22),
    ],
)
def test_complex_messages_come_back(
    program: Path, base_bits: int, fit: tuple[int, int, int], levels: int, error: float
) -> None:
    rng = np.random.default_rng(6)
    slots = 256
    for message in (np.ones(slots, complex), np.exp(2j * np.pi * rng.uniform(size=slots))):
        encoded = np.rint(polynomial_of(message) * 2.0**SCALE_BITS).astype(np.int64)
        coefficients = raised(encoded, 2**base_bits, WEIGHT, rng)
        done, found = run(program, slots_of(coefficients / 2.0**base_bits), base_bits, *fit)
        assert done.returncode == 0, done.stderr.decode()
        before, after = map(int, done.stderr.split())
        assert (before - after, after) == (levels, 14)
        assert np.abs(found - message).max() < error


def test_every_rotation_that_is_named_is_needed(program: Path) -> None:
    # The simulation refuses a rotation without a key, or above its key's level.
    done, _ = run(program, np.zeros(256, complex), 57, 127, 0, 1, "without")
    assert done.returncode == 2
    assert b"there is no key" in done.stderr


def test_rotation_keys_at_full_size(program: Path) -> None:
    done = subprocess.run([str(program), "keys"], capture_output=True, check=True)
    levels = dict(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert len(levels) == 38  # stages of CtS and StC of the same size share them
    assert max(levels.values()) == 27
    assert all(0 < amount < 2**15 for amount in levels)
    assert levels == dry_run("fourteen_levels", 2**15).total().rotation_levels


def refreshed(program: Path, vectors: Reals, *seed: object) -> tuple[list[int], Reals]:
    """Levels and slots that the engine's bootstrap_many gives."""
    count, slots = vectors.shape
    words = [str(program), "refresh", *map(str, (2 * slots, count, *seed))]
    done = subprocess.run(words, input=vectors.tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    levels = [int(level) for level in done.stderr.split()]
    return levels, np.frombuffer(done.stdout).reshape(vectors.shape)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("slots", [8, 256])
def test_real_ciphertexts_share_a_bootstrap(program: Path, slots: int, count: int) -> None:
    rng = np.random.default_rng(count)
    for vectors in (np.ones((count, slots)), rng.uniform(-1, 1, (count, slots))):
        levels, found = refreshed(program, vectors)
        assert levels == [14] * count
        assert 0 < np.abs(found - vectors).max() < 2.0**-19


def test_the_errors_of_ckks_at_full_size(program: Path) -> None:
    # docs/bootstrapping.md: at most 2^-18.1 where all slots are 1, else a deviation of 2^-21.
    vectors = np.stack([np.ones(2**15), np.random.default_rng(1).uniform(-1, 1, 2**15)])
    errors = [refreshed(program, vectors, seed)[1] - vectors for seed in (1, 2)]
    assert np.abs(errors[0] - errors[1]).max() > 2.0**-22  # another seed
    for error in errors:
        largest = -np.log2(np.abs(error).max(axis=1))
        deviation = -np.log2(error.std(axis=1))
        print(f"largest 2^-{largest[0]:.1f}, 2^-{largest[1]:.1f}; deviations {deviation}")
        assert largest[0] > 17.5
        assert largest[1] > 17.5
        assert deviation.min() > 20
