"""The numerical core of bootstrapping, built with the C++ compiler of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bootstrap_core import Core
from cpp_build import OPTIMISED, RUNTIME, Builder, require_compiler

FOLDERS = (RUNTIME / "include", RUNTIME / "bootstrap", RUNTIME)
FLAGS = (*OPTIMISED, *(f"-I{folder}" for folder in FOLDERS))


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Callable[..., Path]:
    """Builds a program of this folder with the runtime; warnings are errors."""
    require_compiler()
    folder = tmp_path_factory.mktemp("bootstrap")
    runtime = cpp.runtime(folder / "runtime", OPTIMISED)

    def program(name: str) -> Path:
        return cpp.program(folder / name, [Path(__file__).with_name(f"{name}.cpp"), runtime], FLAGS)

    return program


@pytest.fixture(scope="session")
def core(build: Callable[..., Path]) -> Core:
    return Core(build("core"))
