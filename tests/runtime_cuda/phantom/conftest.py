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

    def program(name: str, *sources: Path) -> Path:
        engine = [
            path
            for path in (RUNTIME / "engines/phantom").iterdir()
            if path.suffix in (".cpp", ".cu")
        ]
        runtime = [*RUNTIME.glob("src/*.cpp"), *RUNTIME.glob("bootstrap/*.cpp")]
        files = [*sources, *engine, *runtime, HERE / "stand_in/phantom.cpp"]
        return cpp.program(folder / name, files, FLAGS)

    return program
