"""Shared by the tests of emitted programs: the runtime, built once, and once with sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.atlasc.emit.cpp import (
    ROOT,
    SANITIZERS,
    Project,
    emit_and_build,
    has_sanitizers,
    require_compiler,
    run,
)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The Vision Transformer of the examples, compiled, emitted and built by the command line."""
    require_compiler()
    return emit_and_build(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runtime, the fuzzer and the probe under sanitizers, built by CMake."""
    require_compiler()
    folder = tmp_path_factory.mktemp("sanitized")
    if not has_sanitizers(folder):
        pytest.skip("needs a compiler with address and undefined-behaviour sanitizers")
    options = (f"-DCMAKE_CXX_FLAGS=-O1 {' '.join(SANITIZERS)}", "-DCMAKE_BUILD_TYPE=None")
    run(["cmake", "-S", ROOT / "tests/runtime_cuda/fuzz", "-B", folder, *options], folder.parent)
    run(["cmake", "--build", folder, "--parallel", "2"], folder.parent)
    return folder
