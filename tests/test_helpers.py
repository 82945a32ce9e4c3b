"""What keeps the tests short: groups of files for two processes, and objects compiled once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import compiler_cache
import pytest
from cpp_build import OPTIMISED, Builder, require_compiler

ROOT = Path(__file__).resolve().parents[1]


def test_groups() -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    from tests.suite.scheduler import LARGE, TOGETHER, group

    assert [name for name in TOGETHER if not (ROOT / name).is_dir()] == []
    large = ("tests/end_to_end/test_bootstrapped.py", "tests/plugins/desilo/test_desilo.py")
    assert {group(file, deep=True) for file in large} == {LARGE}
    assert {group(file, deep=False) for file in large} == {*large}
    assert group("tests/atlasc/emit/test_roles.py", deep=False) == "tests/atlasc/emit"
    assert group("tests/test_helpers.py", deep=True) == "tests/test_helpers.py"


class Compiler:
    """A compiler that counts what it really compiles, behind the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, folder / "count"
        self.cache = folder / "objects"
        self.cache.mkdir()
        self.program = folder / "compiler"
        self.program.write_text(
            f'#!/bin/sh\ncase "$*" in *-E*) ;; *) echo >>{self.count} ;; esac\n'
            f'exec {require_compiler()} "$@"\n'
        )
        self.program.chmod(0o700)

    def compile(self, source: Path, *flags: str) -> tuple[int, str, int]:
        """Exit code, messages, and how often something was compiled so far."""
        launcher = [sys.executable, "-I", "-S", compiler_cache.__file__, str(self.cache)]
        command = [str(self.program), *flags, "-c", str(source), "-o", str(self.folder / "x.o")]
        (self.folder / "x.o").unlink(missing_ok=True)
        done = subprocess.run([*launcher, *command], capture_output=True, text=True)
        assert (self.folder / "x.o").exists() == (done.returncode == 0)
        return done.returncode, done.stderr, len(self.count.read_text().splitlines())


def test_equal_text_is_compiled_once(tmp_path: Path) -> None:
    compiler, source, other = Compiler(tmp_path), tmp_path / "a.cpp", tmp_path / "b.cpp"
    source.write_text("int one() { return 1; }\n")
    other.write_text("// the same\nint one() { return 1; }\n")
    assert compiler.compile(source, "-O1") == (0, "", 1)
    assert compiler.compile(source, "-O1", f"-I{tmp_path}") == (0, "", 1)
    assert compiler.compile(other, "-O1")[2] == 1
    assert compiler.compile(source, "-O2")[2] == 2
    assert compiler.compile(source, "-O1", "-DVALUE=2")[2] == 3
    source.write_text("int one() { return VALUE; }\n")
    assert compiler.compile(source, "-O1", "-DVALUE=2")[2] == 4
    assert compiler.compile(source, "-O1", "-DVALUE=3")[2] == 5


@pytest.mark.parametrize("text", ["int one() { return two; }\n", '#include "nothing.hpp"\n'])
def test_errors_are_shown_and_not_kept(tmp_path: Path, text: str) -> None:
    compiler, source = Compiler(tmp_path), tmp_path / "a.cpp"
    source.write_text(text)
    for times in (1, 2):
        code, message, count = compiler.compile(source)
        assert (code, count) == (1, times)
        assert "error" in message


def test_a_warning_is_an_error(cpp: Builder, tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text("int one(int unused) { return 1; }\n")
    with pytest.raises(AssertionError, match="unused"):
        cpp.object(tmp_path / "a", source, OPTIMISED)
