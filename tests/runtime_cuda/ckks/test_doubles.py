"""Transforms and conversions of GPUs in doubles: where they are chosen, and that they are those in
integers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, ROOT, RUNTIME, Builder, require_compiler

from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.cuda import CudaParameters

HERE = Path(__file__).parent
SOURCES = [
    *(RUNTIME / f"devices/cuda/{name}" for name in ("device.cpp", "transforms.cu")),
    *(RUNTIME / f"ckks/ring/{name}.cpp" for name in ("ring", "chain", "transform_check")),
    *(RUNTIME / f"src/base/{name}.cpp" for name in ("error", "files", "system", "threads")),
]
FOLDERS = (RUNTIME / "devices/cuda", HERE / "stand_in", RUNTIME, RUNTIME / "include", ROOT)
CARRIED = CpuParameters.bootstrapped().moduli.primes
"""Bits of the primes of the set that the library carries: most have 40 to 50, some 56."""


def built(cpp: Builder, folder: Path, name: str) -> Path:
    require_compiler()
    flags = (*OPTIMISED, *(f"-I{one}" for one in FOLDERS))
    return cpp.program(folder / name, [HERE / f"doubles/{name}.cpp", *SOURCES], flags)


@pytest.fixture(scope="module")
def program(cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(cpp, tmp_path_factory.mktemp("doubles"), "doubles")


@pytest.fixture(scope="module")
def converting(cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(cpp, tmp_path_factory.mktemp("doubles"), "conversions")


def run(program: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, arguments)]
    variables = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, env=variables)


@pytest.mark.parametrize(
    ("environment", "small_primes"),
    [
        ({}, "doubles"),
        ({"ATLASC_STAND_IN": "consumer"}, "integers"),
        ({"ATLASC_STAND_IN": "consumer", "ATLASC_GPU": "doubles"}, "doubles"),
        ({"ATLASC_GPU": "integers"}, "integers"),
    ],
)
def test_the_gpu_and_the_prime_decide(
    program: Path, environment: dict[str, str], small_primes: str
) -> None:
    """The stand-in is a GPU with half as many doubles as floats, or one of consumers. Primes have
    60, 51, 50 and 40 bits."""
    done = run(program, "choice", **environment)
    assert done.stdout.split() == ["integers", "integers", small_primes, small_primes], done.stderr


def test_an_arithmetic_that_does_not_exist(program: Path) -> None:
    done = run(program, "choice", ATLASC_GPU="floats")
    assert done.returncode == 2
    assert 'ATLASC_GPU names no arithmetic: it is "floats"' in done.stderr


def test_products_and_steps_keep_their_bounds(program: Path) -> None:
    """Numbers as large as they may be, and factors whose products are as large as they can be."""
    done = run(program, "bounds", 50, 50, 49, 46, 40, 30, 20)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[:2000] + done.stderr


def compared(program: Path, log_degree: int, random: int, *bits: int) -> int:
    done = run(program, "transforms", log_degree, random, *bits)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[:2000] + done.stderr
    return int(done.stderr)


@pytest.mark.parametrize("log_degree", [11, 12, 13])
def test_transforms_equal_those_in_integers(program: Path, log_degree: int) -> None:
    assert compared(program, log_degree, 1, 50, 50, 49, 40, 20, 56) > 500_000


@pytest.mark.deep("engines")
def test_transforms_of_all_sizes_equal_those_in_integers(program: Path) -> None:
    """The largest primes below 2^50 and 2^49, and those of the carried set."""
    total = sum(
        compared(program, log_degree, 2, *CARRIED, 49) for log_degree in (11, 12, 13, 14, 15, 16)
    )
    total += compared(program, 17, 2, 50, 50, 50, 49, 49)
    assert total >= 10**8


def test_sums_of_conversions_keep_their_bounds(converting: Path) -> None:
    """Ten products of the largest numbers, or fewer."""
    done = run(converting, "bounds", 50, 50, 49, 46, 40, 30, 20)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[:2000] + done.stderr


def conversions(program: Path, log_degree: int, special: int, *bits: int) -> tuple[int, int]:
    done = run(program, "conversions", log_degree, special, *bits)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout[:2000] + done.stderr
    compared, largest = map(int, done.stderr.split())
    return compared, largest


@pytest.mark.parametrize(
    ("special", "bits", "largest"),
    [
        (2, (50, 50, 49, 40, 20), 3),
        (8, (50, *(40,) * 6, 50, 49, 50, 50), 9),  # of eight terms, and of one more
        (8, (50, 62, 50, 40), 10),  # a level of two primes
        (3, (50, 40, 56, 50, 48), 4),  # digits with a larger prime, and to it
    ],
)
def test_conversions_equal_those_in_integers(
    converting: Path, special: int, bits: tuple[int, ...], largest: int
) -> None:
    """The largest primes of so many bits, and the largest sums."""
    compared, found = conversions(converting, 11, special, *bits)
    assert compared > 50_000
    assert found == largest


@pytest.mark.deep("engines")
def test_conversions_of_all_sets_equal_those_in_integers(converting: Path) -> None:
    """The primes of each set of ``cuda`` and of the carried set, and others as large."""
    small = [CudaParameters(14, 6, 1), CudaParameters(15, 14, 2), CudaParameters(16, 28, 6)]
    sets = [*small, CudaParameters.bootstrapped(), CpuParameters.bootstrapped()]
    total = 0
    for one in sets:
        moduli = one.moduli
        for log_degree in (12, one.log_ring_degree):
            total += conversions(converting, log_degree, len(moduli.special), *moduli.primes)[0]
    assert total >= 6 * 10**7
