"""Small programs, and damaged files, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.atlasc.emit.cpp import ROOT, SECONDS, answers, compiled, require_compiler, run
from tests.atlasc.emit.small_programs import small_program
from tests.atlasc.emit.test_programs import INCLUDES, of_harness, write_harness

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
PROGRAMS = ("decoder", "elementwise", "gathered", "grown")
"""Of the small programs, those that together use every kernel."""


def has_sanitizers(folder: Path) -> bool:
    """Whether the compiler brings their libraries."""
    source = folder / "empty.cpp"
    source.write_text("int main() { return 0; }\n")
    command = [require_compiler(), str(source), *FLAGS, "-o", str(folder / "empty")]
    return subprocess.run(command, capture_output=True).returncode == 0


def sanitized_runtime(folder: Path) -> Path:
    """The runtime with its engine, built as a user's build does it."""
    options = (f"-DCMAKE_CXX_FLAGS=-O0 {' '.join(FLAGS)}", "-DCMAKE_BUILD_TYPE=None")
    run(["cmake", "-S", ROOT / "runtime_cuda", "-B", folder, *options], folder.parent)
    run(["cmake", "--build", folder, "--parallel", "2"], folder.parent)
    return folder / "libatlasc_runtime.a"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small programs, and an executable for all of them."""
    folder = tmp_path_factory.mktemp("sanitized")
    if not has_sanitizers(folder):
        pytest.skip("needs a compiler with address and undefined-behaviour sanitizers")
    sources = [write_harness(folder, PROGRAMS), sanitized_runtime(folder / "runtime")]
    compiled(sources, folder / "harness", *FLAGS, *INCLUDES)
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
