"""A type checker knows the options of ``atlasc.compile``."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import atlasc
from documentation import changes

PROGRAM = """from typing_extensions import Unpack
from changes import Changes
def compile(**changes: Unpack[Changes]) -> None: ...
compile(sequence_length=64, target="sim", key_memory="4G", front=None)
compile(sequence_lenght=3)
compile(batch="two")
"""


def test_the_file_is_what_the_options_say() -> None:
    assert changes.FILE.read_text() == changes.text()
    assert inspect.get_annotations(atlasc.compile)["changes"] == "Unpack[Changes]"


def test_a_checker_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "changes.py").write_text(changes.text())
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "program.py", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert done.returncode == 1 and len(found) == 2, done.stdout
    assert 'program.py:5: error: Unexpected keyword argument "sequence_lenght"' in found[0]
    assert 'program.py:6: error: Argument "batch"' in found[1]
