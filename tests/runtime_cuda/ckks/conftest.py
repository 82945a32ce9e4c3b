"""The CKKS engine, built for tests: on the host, and on CUDA by stand-ins, with two transforms."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cpp_build import ROOT, RUNTIME, SANITIZED, WATCHED, Builder, require_compiler

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
FOLDERS = (HERE / "stand_in", HERE / "declarations", RUNTIME, RUNTIME / "include", ROOT)
Build = Callable[..., Path]


def sources_of(device: str) -> list[Path]:
    """``phantom`` is CUDA with the transforms of a library."""
    devices = RUNTIME / "devices"
    if device == "phantom":
        return [devices / "cuda/device.cpp", devices / "phantom/transforms.cu"]
    return sorted((devices / device).rglob("*.c*"))


def builder(folder: Path, cpp: Builder, flags: Sequence[str], *more: str) -> Build:
    """Builds a program of C++ files with the runtime and the engine on a device; warnings are
    errors. ``more``: flags of all but the runtime."""
    require_compiler()
    runtime = cpp.runtime(folder / "runtime", flags)

    def engine(device: str) -> list[Path]:
        """Two files that include all others: each spends most of its time on the same headers."""
        parts = sorted(RUNTIME.glob("ckks/**/*.c*")) + sources_of(device)
        parts.append(RUNTIME / "src/backends.cpp")
        together = [folder / f"{device}.cpp", folder / f"{device}_kernels.cpp"]
        for target, suffix in zip(together, (".cpp", ".cu"), strict=True):
            some = [part for part in parts if part.suffix == suffix]
            target.write_text("".join(f'#include "{part}"\n' for part in some))
        return together

    def program(name: str, *sources: Path, device: str = "host") -> Path:
        stand_in = [HERE / "stand_in/phantom.cpp"] if device == "phantom" else []
        files = [*sources, *engine(device), *stand_in, runtime]
        named = f'-DATLASC_DEVICE_NAME="{"cpu" if device == "host" else device}"'
        folders = (RUNTIME / "devices" / ("host" if device == "host" else "cuda"), *FOLDERS)
        every = (*flags, *more, "-pthread", named, *(f"-I{one}" for one in folders))
        return cpp.program(folder / f"{name}-{device}", files, every)

    return program


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Build:
    """See :func:`builder`. Address and undefined-behaviour sanitizers see the kernels, which are
    ordinary loops here."""
    return builder(tmp_path_factory.mktemp("ckks"), cpp, SANITIZED)


@pytest.fixture(scope="session")
def build_watched(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Build:
    """The same under the race detector."""
    return builder(tmp_path_factory.mktemp("threads"), cpp, WATCHED)


Secrets = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="session")
def secrets(build: Build) -> Secrets:
    """Runs secrets.cpp with made entropy, or with the system's own (None)."""

    @functools.cache
    def program(device: str) -> Path:
        sources = PROGRAMS / "secrets.cpp", HERE.parent / "conformance/programs.cpp"
        return build("secrets", *sources, device=device)

    def run(
        *arguments: object, device: str = "host", entropy: str | None = "1"
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "ATLASC_THREADS": "1"}
        if entropy is not None:
            environment["ATLASC_ENTROPY"] = entropy
        command = [str(program(device)), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, env=environment, check=False)

    return run
