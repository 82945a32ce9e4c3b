"""``python -m tests.faults.kills``: SIGKILL at random moments, and what must be true afterwards.

- Nothing that a search had written down as evaluated is lost.
- The output is not there, or it is complete.
- The same command, given again, succeeds, and nothing is left beside its output.
- Nobody else could read a key at any moment (see watcher.py).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.watcher import Watcher
from tests.faults.workspace import COMMANDS, Command, Workspace, finish, remove, start

MOMENTS = ("any", "late", "writing")
"""In the whole run, in its last tenth, or after its first file appeared."""


@dataclass(frozen=True)
class Kill:
    """One kill, and the faults that it showed."""

    command: str
    moment: str
    seconds: float
    finished: bool
    output: bool
    faults: tuple[str, ...]

    def __str__(self) -> str:
        when = "after its end" if self.finished else f"{self.moment}, {self.seconds:.3f} s"
        left = "output complete" if self.output else "no output"
        return f"{self.command:8} killed {when}: {left}{''.join(f'; {one}' for one in self.faults)}"


def kill(workspace: Workspace, name: str, moment: str, rng: Random, place: Path) -> Kill:
    """Kill one run of a command in an empty folder, and run it again."""
    command = COMMANDS[name]
    output, faults = place / command.output, []
    whole, writing = workspace.seconds[name], workspace.writing[name]
    span = {"any": (0.0, whole), "late": (0.9 * whole, whole), "writing": (0.0, 1.2 * writing)}
    delay = rng.uniform(*span[moment])
    with Watcher(place) if name == "keygen" else nullcontext() as watcher:
        begin = time.monotonic()
        process = start(command, workspace.here, output)
        while moment == "writing" and process.poll() is None and not os.listdir(place):
            time.sleep(0.001)
        if moment == "writing":
            begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < delay:
            time.sleep(0.0005)
        finished = process.poll() is not None
        if not finished:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if output.exists():
            faults += _refused(command, output, "half-written output")
        complete, journal = output.exists(), place / f"{command.output}.journal"
        reported = _evaluations(output / "evaluations.jsonl" if complete else journal)
        code, _, err = finish(command, workspace.here, output)
        if code != (2 if complete else 0):  # nothing is overwritten
            faults.append(f"the second run ended with {code}: {err.strip()[-300:]}")
        else:
            faults += _refused(command, output, "output of the second run")
        kept = _evaluations(output / "evaluations.jsonl")
        if kept[: len(reported)] != reported:
            faults.append(f"{len(reported)} evaluations were kept, and {len(kept)} came back")
    expected = {command.output, *command.beside}
    if debris := sorted(set(os.listdir(place)) - expected):
        faults.append(f"debris: {', '.join(debris)}")
    if watcher is not None:
        assert watcher.looks > 10, "the watcher did not look"
        faults += [f"another user {seen}" for seen in watcher.seen]
    return Kill(name, moment, delay, finished, complete, tuple(faults))


def _refused(command: Command, output: Path, what: str) -> list[str]:
    try:
        command.valid(output)
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {str(error)[:300]}"]
    return []


def _evaluations(path: Path) -> list[str]:
    """Complete lines of a journal."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [line for line in lines if json.loads(line)]


def kills(workspace: Workspace, names: list[str], seed: int, root: Path) -> list[Kill]:
    """Kill a run of each of the commands, one after the other, and print what happened."""
    rng, found = Random(seed), []
    for number, name in enumerate(names):
        place = root / str(number)
        place.mkdir()
        moment = rng.choice(MOMENTS)
        found.append(kill(workspace, name, moment, rng, place))
        print(f"{number + 1:4} {found[-1]}", flush=True)
        remove(place)
    return found


def main() -> int:
    """Run, print, and return the exit code: 1 after a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", action="append", choices=sorted(COMMANDS))
    parser.add_argument("--shortages", action="store_true", help="then full disks and the like")
    arguments = parser.parse_args()
    print(f"{arguments.kills} kills, seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="atlasc-kills-") as folder:
        here, places = Path(folder) / "here", Path(folder) / "places"
        here.mkdir()
        places.mkdir()
        workspace = Workspace.make(here)
        for name, seconds in workspace.seconds.items():
            print(f"{name:8} takes {seconds:5.2f} s, {workspace.writing[name]:.2f} s to write")
        wanted = arguments.command or list(COMMANDS)
        names = [wanted[number % len(wanted)] for number in range(arguments.kills)]
        found = kills(workspace, names, arguments.seed, places)
        short = arguments.shortages and subprocess.run(
            [sys.executable, "-m", "tests.faults.shortage", here], check=False
        )
    failed = [one for one in found if one.faults]
    early = sum(not one.finished for one in found)
    print(f"{len(found)} kills, {early} before the end of the run, {len(failed)} with faults")
    return 1 if failed or (short and short.returncode) else 0


if __name__ == "__main__":
    sys.exit(main())
