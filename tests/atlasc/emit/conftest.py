"""Shared by the tests of emitted programs: the runtime, built once, and once with sanitizers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cpp_build import ROOT, SANITIZED, Builder, require_compiler

from tests.atlasc.emit.cpp import Project, emit_and_build, has_sanitizers
from tests.atlasc.emit.probe import Bench


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Project:
    """The Vision Transformer of the examples, compiled, emitted and built by the command line."""
    require_compiler()
    return emit_and_build(tmp_path_factory.mktemp("digits"), cpp)


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Path:
    """A folder with the runtime, the fuzzer and the probe under sanitizers, built by CMake."""
    require_compiler()
    folder = tmp_path_factory.mktemp("sanitized")
    if not has_sanitizers(folder):
        pytest.skip("needs a compiler with address and undefined-behaviour sanitizers")
    return cpp.cmake(ROOT / "tests/runtime_cuda/fuzz", folder, SANITIZED)


@pytest.fixture(scope="session")
def made(sanitized: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Keys, a query and an answer of the probe; nobody may change its files."""
    return Bench.make(sanitized / "probe", tmp_path_factory.mktemp("made"))


@pytest.fixture
def bench(made: Bench, tmp_path: Path) -> Bench:
    """A copy of them for one test."""
    return Bench(made.program, Path(shutil.copytree(made.folder, tmp_path / "bench")))
