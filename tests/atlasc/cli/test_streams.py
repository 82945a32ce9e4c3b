"""Standard streams that are closed, that nobody reads, or that Python lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from atlasc.api.progress import progress, steps_for
from tests.atlasc.cli.command import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}

MODULE = """module @small : nn {
  %x = nn.input {name = "x", shape = [1, 3], side = "server", dtype = "f64"} : tensor<1x3xf64, server>
  nn.output %x {name = "y"}
}
"""  # noqa: E501


def ended(command: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    line = f'exec "{sys.executable}" -m atlasc {command}'
    return subprocess.run(["bash", "-c", line], env=ENVIRONMENT, timeout=300, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("command", ["--help", "compile --help", "opt --list", "depth nowhere"])
def test_a_reader_that_left_ends_the_command_quietly(command: str) -> None:
    source, sink = os.pipe()
    os.close(source)
    found = ended(command, stdout=sink, stderr=subprocess.PIPE)
    os.close(sink)
    if "nowhere" in command:  # it has nothing to print there
        assert found.returncode == 2 and b"nowhere" in found.stderr
    else:
        assert (found.returncode, found.stderr) == (141, b"")


def test_a_reader_of_messages_that_left() -> None:
    source, sink = os.pipe()
    os.close(source)
    assert ended("depth nowhere", stdout=subprocess.PIPE, stderr=sink).returncode == 141
    os.close(sink)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_result(closed: str, tmp_path: Path) -> None:
    """A file that is written gets nothing that was meant for standard output."""
    module, written = tmp_path / "m.air", tmp_path / "out.air"
    module.write_text(MODULE)
    found = ended(f"opt {module} -p canonicalise -o {written} {closed}", capture_output=True)
    assert found.returncode == 0, found.stderr
    assert written.read_text() == MODULE
    assert ended(f"opt {tmp_path / 'none'} -p canonicalise {closed}").returncode == 2


def test_python_without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a console has None for its streams."""
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", None)
    for wanted in (None, True, False):
        with steps_for(wanted)("work", 3) as step:
            step()
    with progress("work") as step:
        step()
