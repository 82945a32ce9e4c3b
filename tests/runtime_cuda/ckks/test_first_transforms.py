"""What an engine says of first transforms that are not the expected ones: a spoilt stand-in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, ROOT, RUNTIME, Builder, require_compiler

HERE = Path(__file__).parent
SOURCES = [
    HERE / "programs/first_transforms.cpp",
    HERE / "stand_in/phantom.cpp",
    RUNTIME / "devices/cuda/device.cpp",
    RUNTIME / "devices/phantom/transforms.cu",
    *(RUNTIME / f"ckks/ring/{name}.cpp" for name in ("ring", "chain", "transform_check")),
    RUNTIME / "ckks/ring/polynomials.cu",
    *(RUNTIME / f"ckks/plaintexts/{name}" for name in ("copies.cpp", "encoder.cu", "patterns.cpp")),
    RUNTIME / "src/gather.cpp",
    *(RUNTIME / f"src/base/{name}.cpp" for name in ("error", "files", "system", "threads")),
]
FOLDERS = (
    RUNTIME / "devices/cuda",
    HERE / "stand_in",
    HERE / "declarations",
    RUNTIME,
    RUNTIME / "include",
    ROOT,
)
DEVICE = "a stand-in of compute capability 9.0, driver for CUDA 13.1, CUDA runtime 12.8"
WHAT = "the transform of this build is not the expected one"
FORWARDS = "forwards, forwards with special primes"
BACKWARDS = "backwards, backwards to another buffer"
EVERY_WAY = f"{FORWARDS}, {BACKWARDS}"
ALL = "modulo primes 1 to 4 of 4"


@pytest.fixture(scope="module")
def program(cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_compiler()
    flags = (*OPTIMISED, *(f"-I{one}" for one in FOLDERS))
    return cpp.program(tmp_path_factory.mktemp("first") / "transforms", SOURCES, flags)


def said(program: Path, spoilt: str) -> list[str]:
    environment = os.environ | {"ATLASC_STAND_IN": spoilt}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_right_transforms(program: Path) -> None:
    assert said(program, "") == []


@pytest.mark.parametrize(
    ("spoilt", "findings"),
    [
        (
            "nothing",
            f"{EVERY_WAY}: the buffer is unchanged, so that no kernel ran, {ALL} "
            "(8192 of 8192 differ, the first at place 0)",
        ),
        (
            "halfway",
            f"{EVERY_WAY}: numbers are those after 6 of 11 stages, so that a kernel did not run, "
            f"{ALL} (8192 of 8192 differ, the first at place 0)",
        ),
        (
            "unreduced",
            f"{EVERY_WAY}: numbers are not reduced, but else the right ones, {ALL} "
            "(2048 of 8192 differ, the first at place 0)",
        ),
        (
            "reversed",
            f"{BACKWARDS}: numbers are the right ones in bit-reversed order {ALL} "
            "(5288 of 8192 differ, the first at place 1); "
            f"{FORWARDS}: numbers are the right ones in bit-reversed order {ALL} "
            "(7936 of 8192 differ, the first at place 1)",
        ),
        (
            "another root",
            f"{FORWARDS}: numbers are the values at another root of unity, the expected one to "
            f"the power of 5, {ALL} (8192 of 8192 differ, the first at place 0)",
        ),
        (
            "another order",
            f"{EVERY_WAY}: numbers are the right ones in another order {ALL} "
            "(8 of 8192 differ, the first at place 2)",
        ),
        (
            "wrong",
            f"{EVERY_WAY}: numbers are wrong modulo primes 2, 4 of 4 "
            "(2 of 4096 differ, the first at place 9)",
        ),
        (
            "wrong and unreduced",
            f"{EVERY_WAY}: numbers are not reduced, and wrong {ALL} "
            "(4 of 8192 differ, the first at place 9)",
        ),
    ],
)
def test_what_differs(program: Path, spoilt: str, findings: str) -> None:
    where, what, why, remedy = said(program, spoilt)
    assert (where, what, why) == ("", WHAT, f"{findings}; {DEVICE}")
    assert "docs/backend-phantom.md says what each finding means" in remedy


def test_an_error_of_a_launch(program: Path) -> None:
    assert said(program, "not launched") == [
        "the first transforms: forwards",
        "CUDA failed",
        "the transform of residues: cudaErrorNoKernelImageForDevice, no kernel image is available "
        f"for execution on the device; {DEVICE}",
        "build for this device (CMAKE_CUDA_ARCHITECTURES), a library too, by an nvcc that is no "
        "newer than its driver",
    ]


@pytest.mark.parametrize(
    ("spoilt", "error"),
    [
        ("a fault", "cudaErrorIllegalAddress, an illegal memory access was encountered"),
        ("a lost device", "cudaErrorECCUncorrectable, uncorrectable ECC error encountered"),
    ],
)
def test_an_error_of_what_was_launched(program: Path, spoilt: str, error: str) -> None:
    assert said(program, spoilt) == [
        "the first transforms: forwards",
        "the CUDA device failed",
        f"cudaStreamSynchronize: {error}; {DEVICE}",
        "start again: this process gets no more results from the device; if it happens again, see "
        "what the driver says (dmesg, nvidia-smi -q)",
    ]


def test_a_device_that_another_process_has_for_itself(program: Path) -> None:
    assert said(program, "taken") == [
        "",
        "CUDA failed",
        "cudaMemGetInfo: cudaErrorDevicesUnavailable, CUDA-capable device(s) is/are busy or "
        f"unavailable; {DEVICE}",
        "end the process that has the device for itself (nvidia-smi lists it), or choose another "
        "device (CUDA_VISIBLE_DEVICES)",
    ]


def test_a_device_whose_memory_other_processes_took(program: Path) -> None:
    found = said(program, "full")
    assert found[1] == "too little device memory"
    assert found[2].startswith("cudaMallocAsync: cudaErrorMemoryAllocation")
    assert "end other processes on the device (nvidia-smi lists them)" in found[3]


def test_the_transform_of_slots(program: Path) -> None:
    assert said(program, "no slots")[:3] == [
        "",
        "the Fourier transform of this build is not the expected one",
        f"1023 of 2048 coefficients differ; {DEVICE}",
    ]
