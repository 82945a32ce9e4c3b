"""Small programs under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpp_build import SANITIZERS, Builder

from tests.atlasc.emit.cpp import answers, compiled
from tests.atlasc.emit.small_programs import small_program
from tests.atlasc.emit.test_programs import INCLUDES, of_harness, write_harness

PROGRAMS = ("decoder", "elementwise", "gathered", "grown")
"""Of the small programs, those that together use every kernel."""


@pytest.fixture(scope="module")
def checked(sanitized: Path, cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small programs, and an executable for all of them."""
    folder = tmp_path_factory.mktemp("checked")
    runtime = sanitized / "runtime" / "libatlasc_runtime.a"
    sources = [write_harness(folder, PROGRAMS), runtime]
    compiled(cpp, sources, folder / "harness", *SANITIZERS, *INCLUDES)
    return folder


@pytest.mark.deep("sanitizers")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_clean(checked: Path, name: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(small_program(name).inputs, tmp_path / "in.safetensors")
    project = of_harness(checked / "harness", checked, name)
    answers(project, tmp_path / "in.safetensors", tmp_path)
