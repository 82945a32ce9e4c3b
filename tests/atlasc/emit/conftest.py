"""Shared by the tests of emitted programs: the runtime, built once."""

from __future__ import annotations

import pytest

from tests.atlasc.emit.cpp import Project, emit_and_build, require_compiler


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The Vision Transformer of the examples, compiled, emitted and built by the command line."""
    require_compiler()
    return emit_and_build(tmp_path_factory.mktemp("digits"))
