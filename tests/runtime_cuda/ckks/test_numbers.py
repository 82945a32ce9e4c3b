"""Random polynomials and arithmetic modulo primes."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from atlasc.targets.cpu import CpuParameters

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def numbers(build: Callable[..., Path]) -> Callable[..., list[float]]:
    program = build("numbers", HERE / "numbers.cpp", HERE.parent / "conformance/programs.cpp")

    def printed(*arguments: object) -> list[float]:
        command = [str(program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [int(word) if word.isdigit() else float(word) for word in done.stdout.split()]

    return printed


def test_chacha20_of_the_standard(numbers: Callable[..., list[float]]) -> None:
    text = """e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3
              466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"""
    assert numbers("chacha20") == [int(word, 16) for word in text.split()]


def test_reduction_is_exact(numbers: Callable[..., list[float]]) -> None:
    rng = random.Random(3)
    for q in (2**60 - 2**18 + 1, 2**46 + 2**17 + 1, 2**30 + 1, 2**60 - 1):
        multiple = (2**128 - 1) // q * q
        for x in (0, q - 1, q, multiple - 1, multiple, 2**128 - 1, rng.getrandbits(128)):
            assert numbers("reduce", q, x % 2**64, x >> 64) == [x % q]


def test_python_has_the_same_digits(numbers: Callable[..., list[float]]) -> None:
    parameters = CpuParameters.bootstrapped()
    levels = range(len(parameters.moduli.primes))
    assert numbers("digits", parameters.bootstrap) == [parameters.digits(at) for at in levels]
    assert parameters.digits(levels[-1]) == 4


def test_distributions(numbers: Callable[..., list[float]]) -> None:
    mean, variance, same, middle, distinct, minus, zero, one, weight = numbers("samples")
    assert abs(mean) < 0.5  # 7 standard deviations at 2^11 coefficients
    assert variance == pytest.approx(10.5, rel=0.25)
    assert same == 1  # one integer modulo every prime
    assert middle == pytest.approx(0.5, abs=0.045)
    assert distinct == 2 * 2**11
    assert all(count == pytest.approx(2**11 / 3, abs=150) for count in (minus, zero, one))
    assert weight == 32
