"""Killed commands leave nothing half-written; ``make faults`` kills a hundred times."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.kills import kills
from tests.faults.watcher import Watcher
from tests.faults.workspace import ROOT, Workspace

KILLED = ["keygen", "encrypt", "execute", "decrypt", "emit", "search", "compile", "keygen"]


@pytest.mark.deep("faults")
def test_a_killed_command_can_be_given_again(workspace: Workspace, open_folder: Path) -> None:
    found = kills(workspace, KILLED, 1, open_folder)
    assert [str(one) for one in found if one.faults] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_watcher_sees_what_others_may_read(open_folder: Path) -> None:
    with Watcher(open_folder) as watcher:
        (open_folder / "mine").mkdir(0o700)
        (open_folder / "mine" / "open.key").touch()
        (open_folder / "mine" / "open.key").chmod(0o644)  # under any umask
        (open_folder / "secret.key").touch(0o600)
        time.sleep(0.2)
    assert watcher.seen == []
    with Watcher(open_folder) as watcher:
        (open_folder / "mine").chmod(0o755)
        time.sleep(1.0)  # on a busy machine it looks less often
    assert sorted(watcher.seen) == ["listed mine (755)", "read open.key (644)"]
    assert stat.S_IMODE((open_folder / "secret.key").stat().st_mode) == 0o600


START = """
import os, signal, sys

class Interrupt:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt)
import atlasc.__main__
atlasc.__main__.main()
"""
MODULES = ("atlasc.cli", "typer", "difflib", "atlasc.cli.output", "atlasc.cli.commands.stages")


@pytest.mark.parametrize("module", [*MODULES, "atlasc.compilation.prepare", "lark"])
def test_an_interrupt_is_no_traceback(module: str, tmp_path: Path) -> None:
    """Ctrl-C while Python looks for a module, of the command line or of a command."""
    model = ROOT / "examples" / "configs" / "bert-base"
    done = subprocess.run(
        [sys.executable, "-c", START, module, "trace", model, "-o", tmp_path / "x.air"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr and "Aborted" not in done.stderr
    assert list(tmp_path.iterdir()) == []
