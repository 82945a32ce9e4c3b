"""The engine's sources compile for CUDA, against our declarations and Phantom's headers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "runtime_cuda"
DEVICE = RUNTIME / "devices/cuda"
FILES = sorted(path for one in ("ckks", "devices") for path in RUNTIME.glob(f"{one}/**/*.*"))
COMPILED = [path for path in FILES if path.suffix in (".cpp", ".cu")]
SOURCES = [path for path in COMPILED if "host" not in path.parts]
NVCC = shutil.which("nvcc")


def architectures() -> list[int]:
    """Those of our users that this nvcc knows."""
    command = [NVCC or "true", "--list-gpu-code"]
    known = subprocess.run(command, capture_output=True, text=True).stdout.split()
    return [one for one in (80, 89, 90, 100) if f"sm_{one}" in known]


ARCHITECTURES = architectures()


def phantom_headers() -> Path | None:
    """Of the Phantom that the environment names: built in place, or installed."""
    root = os.environ.get("Phantom_ROOT")  # noqa: SIM112 -- as CMake's find_package reads it
    folders = [] if root is None else [Path(root, "include/phantom"), Path(root, "include")]
    return next((one for one in folders if (one / "ntt.cuh").exists()), None)


def compile_with(headers: Path, source: Path, target: Path) -> None:
    assert NVCC is not None
    real = ",".join(f"sm_{one}" for one in ARCHITECTURES)
    codes = [f"-gencode=arch=compute_{ARCHITECTURES[0]},code=[{real}]"]
    folders = [f"-I{one}" for one in (RUNTIME, RUNTIME / "include", DEVICE)]
    warnings = ["-Xcompiler=-Wall", "-Werror=all-warnings"]
    command = [NVCC, "-std=c++17", "-c", *codes, *folders, *warnings, "-isystem", str(headers)]
    command += ['-DATLASC_DEVICE_NAME="phantom"', str(source), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep("engines")
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_compiles_against_declarations(source: Path, tmp_path: Path) -> None:
    compile_with(HERE / "declarations", source, tmp_path / "object.o")


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.skipif(phantom_headers() is None, reason="Phantom_ROOT names no Phantom")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_compiles_against_phantom(source: Path, tmp_path: Path) -> None:
    headers = phantom_headers()
    assert headers is not None
    compile_with(headers, source, tmp_path / "object.o")


@pytest.mark.deep("engines")
@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_of_a_pass_stay_in_registers(architecture: int, tmp_path: Path) -> None:
    """Four blocks of 256 threads share the 65,536 registers of a multiprocessor, and a pass over a
    long vector of residues keeps its eight numbers there. A conversion has a few addresses in
    memory, which its inner loop does not read."""
    assert NVCC is not None
    folders = [f"-I{one}" for one in (RUNTIME, RUNTIME / "include", DEVICE)]
    command = [NVCC, "-std=c++17", "-O3", "-c", f"-arch=sm_{architecture}", "-Xptxas=-v", *folders]
    command += [str(DEVICE / "transforms.cu"), "-o", str(tmp_path / "object.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    used = r".*\n.*\n *(\d+) bytes stack frame.*\n.*Used (\d+) registers"
    told = done.stdout + done.stderr
    kernels = re.findall(
        rf"entry function '\w*?(Residue|Complex)Vectors\w*?PartsE(\d)\w*'{used}", told
    )
    assert len(kernels) == 12
    assert all(int(registers) <= 64 for *_, registers in kernels), kernels
    long = [int(stack) for kind, parts, stack, _ in kernels if kind == "Residue" and parts != "2"]
    assert len(long) == 4 and max(long) <= 16, kernels
    for kernel, most in (("KeyRows", 16), ("Conversions", 24)):
        found = re.findall(rf"entry function '\w*?{kernel}\w*'{used}", told)
        assert len(found) == 2
        assert all(int(stack) <= most and int(count) <= 64 for stack, count in found), found


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.name)
def test_no_source_asks_for_the_architecture(source: Path) -> None:
    """So that one translation to PTX stands for those of all architectures."""
    assert "__CUDA_ARCH__" not in source.read_text()


def test_cmake_knows_every_source() -> None:
    texts = [RUNTIME / "CMakeLists.txt", *RUNTIME.glob("devices/*/engine.cmake")]
    words = [word.strip(")") for text in texts for word in text.read_text().split()]
    listed = {RUNTIME / word for word in words if word.startswith(("ckks/", "devices/"))}
    assert {path for path in listed if path.suffix in (".cpp", ".cu")} == set(COMPILED)
