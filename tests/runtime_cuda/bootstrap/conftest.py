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
    """Compiles a program of this folder with sources of the runtime; warnings are errors."""
    require_compiler()

    def compile(name: str, *sources: str) -> Path:
        files = [Path(__file__).with_name(f"{name}.cpp"), *(RUNTIME / path for path in sources)]
        return cpp.program(tmp_path_factory.mktemp("bootstrap") / name, files, FLAGS)

    return compile


@pytest.fixture(scope="session")
def core(build: Callable[..., Path]) -> Core:
    sources = ("linear_stages", "eval_mod", "parameters")
    return Core(build("core", *(f"bootstrap/{name}.cpp" for name in sources)))
