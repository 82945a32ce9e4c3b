"""What the engine computes, by the conformance suite."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "runtime_cuda"
PROGRAMS = HERE / "programs"
DEEP = pytest.mark.deep("engines")
DEVICES = ("host", *(pytest.param(name, marks=DEEP) for name in ("cuda", "phantom")))
CONFORMANCE = HERE.parent / "conformance"


@pytest.fixture(scope="session", params=DEVICES)
def conformance(request: pytest.FixtureRequest, build: Callable[..., Path]) -> Path:
    sources = CONFORMANCE / "conformance.cpp", CONFORMANCE / "programs.cpp"
    return build("conformance", *sources, device=request.param)


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


# The kernels of stand-ins run one thread after another, so they have as few primes as there can be:
# several digits of one prime, and a whole digit with a part of one. CUDA's transforms compute in
# doubles modulo small primes, but not on a stand-in of a consumer's GPU.
CASES = [
    ("host", ("leveled", "14", "3", "3"), ""),
    pytest.param("cuda", ("leveled", "13", "2", "1"), "", marks=DEEP),
    pytest.param("cuda", ("leveled", "13", "2", "1"), "consumer", marks=DEEP),
    pytest.param("host", ("leveled", "14", "6", "1"), "", marks=DEEP),
    pytest.param("cuda", ("leveled", "14", "2", "2"), "", marks=DEEP),
    pytest.param("phantom", ("leveled", "13", "2", "1"), "", marks=DEEP),
    pytest.param("phantom", ("leveled", "14", "2", "2"), "", marks=DEEP),
]


@pytest.mark.parametrize(("conformance", "arguments", "gpu"), CASES, indirect=["conformance"])
def test_conformance(conformance: Path, arguments: tuple[str, ...], gpu: str) -> None:
    done = run(conformance, *arguments, ATLASC_STAND_IN=gpu)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok    ") == len(done.stdout.splitlines()) > 20
    assert "too small: too little" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("leveled", "13", "6", "1"), {}, "fewer than 128 bits"),
        (("leveled", "10", "1", "1"), {}, "no ring of degree 1024"),
    ],
)
def test_one_message_and_no_crash(
    conformance: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    done = run(conformance, *arguments, **environment)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("threads", ["1", pytest.param("3", marks=DEEP)])
@pytest.mark.parametrize("cpu", ["ifma", pytest.param("avx2", marks=DEEP), "portable"])
def test_transforms_and_kernels_of_the_host(
    build: Callable[..., Path], cpu: str, threads: str
) -> None:
    sources = PROGRAMS / "host_kernels.cpp", CONFORMANCE / "programs.cpp"
    done = run(build("host_kernels", *sources), ATLASC_CPU=cpu, ATLASC_THREADS=threads)
    if "this processor cannot run" in done.stderr:
        pytest.skip(f"needs a processor with the instructions of {cpu}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("device", "cpu"),
    [
        ("host", "ifma"),
        *(
            pytest.param(device, cpu, marks=DEEP)
            for device, cpu in (
                ("host", "avx2"),
                ("host", "portable"),
                ("cuda", ""),
                ("phantom", ""),
            )
        ),
    ],
)
def test_plaintexts_that_repeat(build: Callable[..., Path], device: str, cpu: str) -> None:
    sources = PROGRAMS / "repeating.cpp", CONFORMANCE / "programs.cpp"
    done = run(build("repeating", *sources, device=device), ATLASC_CPU=cpu)
    if "this processor cannot run" in done.stderr:
        pytest.skip(f"needs a processor with the instructions of {cpu}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_each_vector_kernel_is_checked_when_an_engine_starts() -> None:
    """Transforms have no other loop to be compared with: the test above takes their products."""
    listed = (RUNTIME / "devices/host/vectors/vector_kernels.hpp").read_text(encoding="utf-8")
    checks = (RUNTIME / "devices/host/check_kernels.cpp").read_text(encoding="utf-8")
    names = {*re.findall(r"KERNEL\((\w+), ", listed)} - {"forward", "backward"}
    assert len(names) > 10 and {name for name in names if f"run.{name}(" not in checks} == set()


def test_kernels_that_do_not_exist(build: Callable[..., Path]) -> None:
    sources = PROGRAMS / "host_kernels.cpp", CONFORMANCE / "programs.cpp"
    done = run(build("host_kernels", *sources), ATLASC_CPU="sse")
    assert done.returncode == 2
    assert 'ATLASC_CPU names no kernels: it is "sse"' in done.stderr


@pytest.mark.deep("engines")
def test_a_machine_without_a_gpu(build: Callable[..., Path]) -> None:
    sources = CONFORMANCE / "conformance.cpp", CONFORMANCE / "programs.cpp"
    program = build("conformance", *sources, device="cuda")
    done = run(program, "leveled", "14", "6", "1", ATLASC_STAND_IN="none")
    assert done.returncode == 2
    assert "no CUDA device" in done.stderr
