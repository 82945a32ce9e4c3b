"""Small programs, and damaged files, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.atlasc.emit.cpp import SANITIZERS, SECONDS, answers, compiled
from tests.atlasc.emit.small_programs import small_program
from tests.atlasc.emit.test_programs import INCLUDES, of_harness, write_harness

PROGRAMS = ("decoder", "elementwise", "gathered", "grown")
"""Of the small programs, those that together use every kernel."""


@pytest.fixture(scope="module")
def checked(sanitized: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small programs, and an executable for all of them."""
    folder = tmp_path_factory.mktemp("checked")
    runtime = sanitized / "runtime" / "libatlasc_runtime.a"
    sources = [write_harness(folder, PROGRAMS), runtime]
    compiled(sources, folder / "harness", *SANITIZERS, *INCLUDES)
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_clean(checked: Path, name: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(small_program(name).inputs, tmp_path / "in.safetensors")
    project = of_harness(checked / "harness", checked, name)
    answers(project, tmp_path / "in.safetensors", tmp_path)


def test_damaged_files_never_crash(checked: Path, tmp_path: Path) -> None:
    """A query with a byte of its header changed is refused, or does no harm."""
    from safetensors.numpy import save_file

    save_file(small_program("grown").inputs, tmp_path / "in.safetensors")
    project = of_harness(checked / "harness", checked, "grown")
    answers(project, tmp_path / "in.safetensors", tmp_path)
    content = (tmp_path / "query").read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    codes = set()
    for position in range(0, header, 7):
        for value in (0, ord('"'), ord("9")):
            damaged = content[:position] + bytes([value]) + content[position + 1 :]
            (tmp_path / "damaged").write_bytes(damaged)
            (tmp_path / "new").unlink(missing_ok=True)
            command = [*project.server, "--keys", "keys/evaluation.key", "--query", "damaged"]
            command += ["--weights", str(project.weights), "--output", "new"]
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
            )
            codes.add(done.returncode)
            assert done.returncode in (0, 2), done.stderr
            assert "Sanitizer" not in done.stderr
    assert codes == {0, 2}
