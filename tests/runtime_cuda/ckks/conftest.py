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
        names = "cuda/device.cpp", "host/repeated.cpp", "phantom/transforms.cu"
        return [devices / name for name in names]
    return sorted(path for path in (devices / device).rglob("*") if path.suffix in (".cpp", ".cu"))


def builder(folder: Path, cpp: Builder, flags: Sequence[str], *more: str) -> Build:
    """Builds a program of C++ files with the runtime and the engine on a device; warnings are
    errors. ``more``: flags of all but the runtime."""
    require_compiler()
    runtime = cpp.runtime(folder / "runtime", flags)

    def engine(device: str) -> list[Path]:
        """Three files that include all others: each spends most of its time on the same headers.
        CUDA's own transforms and those of a library share all but the last."""
        parts = sorted(RUNTIME.glob("ckks/**/*.c*"))
        named = [RUNTIME / "ckks/ckks_backend.cpp", RUNTIME / "src/backends.cpp"]
        shared = [part for part in parts if part not in named]
        files = {
            "ckks.cpp": [part for part in shared if part.suffix == ".cpp"],
            "ckks_kernels.cu": [part for part in shared if part.suffix == ".cu"],
            f"{device}.cpp": [*named, *sources_of(device)],
        }
        name = f'#define ATLASC_DEVICE_NAME "{"cpu" if device == "host" else device}"\n'
        for file, some in files.items():
            text = "".join(f'#include "{part}"\n' for part in some)
            (folder / file).write_text(name + text if named[0] in some else text)
        return [folder / file for file in files]

    def program(name: str, *sources: Path, device: str = "host") -> Path:
        stand_in = [HERE / "stand_in/phantom.cpp"] if device == "phantom" else []
        files = [*sources, *engine(device), *stand_in, runtime]
        folders = (RUNTIME / "devices" / ("host" if device == "host" else "cuda"), *FOLDERS)
        every = (*flags, *more, "-pthread", *(f"-I{one}" for one in folders))
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
