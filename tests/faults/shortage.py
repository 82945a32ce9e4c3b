"""``python -m tests.faults.shortage``: every command that writes, with too little of something.

Each runs in a fork of one process that has imported everything, with its output on a file system
that is full (where namespaces may be made), with files that may not grow beyond half of its largest
(RLIMIT_FSIZE), or with little memory (RLIMIT_AS). It must then say so and exit with 2, what was
there before must be as it was, and nothing else may be left.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.workspace import COMMANDS, MORE, Command, remove, start

OLD = "what was there before"
REPLACED = ("trace", "opt", "calibrate", "inspect", "calibrate-backend")
"""Commands that write over an older output."""
ENCRYPTED = ("keygen", "encrypt", "execute", "decrypt")
"""Commands in processes of their own: desilofhe has threads, which do not survive a fork."""
HUNGRY = {"compile": 24 << 20}
"""Commands whose shortage of memory is tried, and the bytes that they get."""
QUICK = ("keygen", "emit", "embed", "opt")
"""Commands that also meet a full disk in a quick run."""
LIBRARY = "OpenBLAS error: Memory allocation still failed"
SECONDS = 60
"""Of one run at most."""
SAID = {
    "full": re.compile(r"no space left|disk is full|disk space", re.IGNORECASE),
    "limit": re.compile(r"file too large|no space left|disk is full|disk space", re.IGNORECASE),
    "memory": re.compile(r"memory", re.IGNORECASE),
}
ALL: dict[str, Command] = {
    **COMMANDS,
    **MORE,
    "compare": Command(
        "compare {here}/bundle --target sim --input {here}/images.npz --index 0 --checkpoint {out}",
        "state.npz",
        lambda path: None,
    ),
    "calibrate-backend": Command(
        "calibrate-backend -o {out}", "table.json", lambda path: json.loads(path.read_text())
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What a command did under a shortage: its exit code, what it said, and what it did wrong."""

    command: str
    shortage: str
    code: int
    said: str
    faults: tuple[str, ...]


def run(name: str, here: Path, place: Path, shortage: str, size: int) -> tuple[int, str]:
    """Exit code and messages of a command."""

    def limit() -> None:
        if shortage == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        elif shortage == "memory":
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + size,) * 2)

    command = ALL[name]
    if name in ENCRYPTED:
        process = start(command, here, place / command.output, preexec_fn=limit)
        try:
            said = process.communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
        return process.returncode, said
    if shortage == "memory":  # a library that is half imported says anything but that
        import torch._dynamo
        import torch.export  # noqa: F401
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        code = 99
        try:
            signal.alarm(SECONDS)
            os.dup2(sender, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            limit()
            code = _main(command.words(here, place / command.output)[3:])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(sender)
    with os.fdopen(receiver, errors="replace") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _main(words: list[str]) -> int:
    from atlasc.cli import app

    try:
        app(words, prog_name="atlasc")
    except SystemExit as end:
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 0
    return 0


def outcome(name: str, shortage: str, here: Path, place: Path, largest: int) -> Outcome:
    """Run a command under a shortage, in an empty folder."""
    command, old = ALL[name], place / ALL[name].output
    if name in REPLACED and shortage != "memory":
        old.write_text(OLD)
    size = HUNGRY[name] if shortage == "memory" else max(largest // 2, 1)
    if shortage == "full":
        _fill(place, size)
    code, said = run(name, here, place, shortage, size)
    faults = []
    if code == 0 and shortage == "memory":  # it was enough here
        command.valid(old)
        remove(old)
    elif code in (1, -signal.SIGSEGV) and shortage == "memory" and LIBRARY in said:
        # OpenBLAS says so and calls exit(1) itself, whose handlers may lack memory, too; no program
        # can prevent it. The draft stays, as after a kill, and the next run removes it.
        for draft in place.glob(".*.part"):
            remove(draft)
    elif code != 2:
        faults.append(f"exit code {code}")
    elif "Traceback" in said or "internal error" in said or not SAID[shortage].search(said):
        faults.append("it does not say what is wrong")
    left = set(os.listdir(place)) - {
        *("filler", f"{command.output}.journal", f"{command.output}.journal.ranges")
    }
    if name in REPLACED and shortage != "memory":
        left -= {old.name}
        if not old.is_file() or old.read_text() != OLD:
            faults.append("the old output is not what it was")
    if left:
        faults.append(f"debris: {', '.join(sorted(left))}")
    return Outcome(name, shortage, code, said.strip()[-1500:], tuple(faults))


def _fill(place: Path, room: int) -> None:
    """Fill a file system up to so many bytes."""
    status = os.statvfs(place)
    pages = status.f_bavail - room // status.f_frsize
    with (place / "filler").open("wb") as file:
        file.write(bytes(pages * status.f_frsize))


def prepare(here: Path) -> dict[str, int]:
    """Run every command once, with nothing short; the bytes of its largest file."""
    sizes = {"compare": 2000}
    for name, command in ALL.items():
        output = here / command.output
        if name != "compare" and not output.exists():
            code, said = run(name, here, here, "nothing", 0)
            assert code == 0, f"{name}: {said}"
        command.valid(output)
        files = [path for path in (output, *output.rglob("*")) if path.is_file()]
        sizes.setdefault(name, max((path.stat().st_size for path in files), default=0))
    return sizes


def import_everything() -> None:
    """What the commands import, and stand-ins for what takes minutes."""
    import torch

    from atlasc.compare import checkpoint as comparison_state
    from atlasc.compilation import compile  # noqa: F401
    from atlasc.targets import cost_table as cost_files
    from atlasc.targets.calibration import Calibrator
    from atlasc_comparisons.desilo.engine import DesiloEngine  # noqa: F401

    torch.set_num_threads(1)
    shipped = cost_files.load(cost_files.shipped_place("cpu"))
    Calibrator.__call__ = lambda *_, **__: shipped  # type: ignore[method-assign]
    comparison_state.Checkpoint.__init__.__defaults__ = (0.0,)  # type: ignore[attr-defined]


def main() -> int:
    """Run, print, write the report, and return the exit code: 1 after a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.shortage", description=__doc__)
    parser.add_argument("here", type=Path, help="a folder where the commands of workspace.py ran")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--command", action="append", choices=sorted(ALL))
    parser.add_argument("--quick", action="store_true", help="full disks for a few of them")
    parser.add_argument("--mounts", action="store_true", help="file systems may be mounted")
    arguments = parser.parse_args()
    if not arguments.mounts and shutil.which("unshare"):
        here = ["unshare", "-rm", sys.executable, "-m", "tests.faults.shortage", "--mounts"]
        if not subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
            os.execvp("unshare", [*here, *sys.argv[1:]])
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    import_everything()
    sizes, found = prepare(arguments.here), []
    place = arguments.here / "place"
    for name in arguments.command or ALL:
        full = arguments.mounts and (not arguments.quick or name in QUICK)
        shortages = ["limit", *["full"] * full, *["memory"] * (name in HUNGRY)]
        for shortage in shortages:
            place.mkdir()
            if shortage == "full":
                words = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
                subprocess.run(words, check=True)
            found.append(outcome(name, shortage, arguments.here, place, sizes[name]))
            if shortage == "full":
                subprocess.run(["umount", str(place)], check=True)
            remove(place)
            one = found[-1]
            print(f"{name:18} {shortage:7} exit {one.code:3} {'; '.join(one.faults)}", flush=True)
    if arguments.report:
        arguments.report.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 1 if any(one.faults for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
