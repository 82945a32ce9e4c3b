"""The engine on Phantom, built for the CPU: CUDA and Phantom's transforms by stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cpp_build import ROOT, RUNTIME, SANITIZED, Builder, require_compiler

HERE = Path(__file__).parent
FOLDERS = (HERE / "stand_in", HERE / "declarations", RUNTIME, RUNTIME / "include", ROOT)
FLAGS = (*SANITIZED, *(f"-I{folder}" for folder in FOLDERS))


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Callable[..., Path]:
    """Builds a program of C++ files with the runtime and the engine; warnings are errors.

    Address and undefined-behaviour sanitizers see the kernels, which are ordinary loops here.
    """
    require_compiler()
    folder = tmp_path_factory.mktemp("stand-in")
    runtime = cpp.runtime(folder / "runtime", SANITIZED)
    engine = [folder / "engine.cpp", folder / "kernels.cpp"]
    for together, suffix in zip(engine, (".cpp", ".cu"), strict=True):
        parts = sorted((RUNTIME / "engines/phantom").glob(f"*{suffix}"))
        together.write_text("".join(f'#include "{part}"\n' for part in parts))

    def program(name: str, *sources: Path) -> Path:
        files = [*sources, *engine, HERE / "stand_in/phantom.cpp", runtime]
        return cpp.program(folder / name, files, FLAGS)

    return program
