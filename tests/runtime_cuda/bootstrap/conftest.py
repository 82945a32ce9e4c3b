"""The numerical core of bootstrapping, built with the C++ compiler of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bootstrap_core import Core

ROOT = Path(__file__).resolve().parents[3]
RUNTIME = ROOT / "runtime_cuda"
WARNINGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a program of this folder with sources of the runtime; warnings are errors."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++17 compiler: none named in CXX, no g++, no c++")

    def compile(name: str, *sources: str) -> Path:
        program = tmp_path_factory.mktemp("bootstrap") / name
        files = [Path(__file__).with_name(f"{name}.cpp"), *(RUNTIME / path for path in sources)]
        folders = [f"-I{RUNTIME / 'include'}", f"-I{RUNTIME / 'bootstrap'}", f"-I{RUNTIME}"]
        command = [compiler, *WARNINGS, *folders, *map(str, files), "-o", str(program)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return program

    return compile


@pytest.fixture(scope="session")
def core(build: Callable[..., Path]) -> Core:
    sources = ("linear_stages", "eval_mod", "parameters")
    return Core(build("core", *(f"bootstrap/{name}.cpp" for name in sources)))
