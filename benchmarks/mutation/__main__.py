"""Plants each fault of ``faults.json`` in a copy of the repository and runs the tests near it.

First the quick tests run that ``make test-near`` would choose, then all quick tests that depend on
the file, then these with the deep ones. A test that fails, and passes in a copy without the fault,
has found it. A fault whose text is not in its file any more ends the run. The results lie in a
file: a run that was killed goes on.

    python -m benchmarks.mutation build/mutation.json
    python -m benchmarks.mutation build/mutation.json --only 7 28
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.json")
CPP = {".cpp", ".cu", ".hpp"}


class Stage(NamedTuple):
    """Some of the tests that depend on a file.

    Attributes:
        name: how the table calls it.
        seconds: as many tests as fit into this time run, nearest first; None: all.
        options: of pytest.
    """

    name: str
    seconds: int | None
    options: tuple[str, ...] = ()


STAGES = (Stage("near", 180), Stage("quick", None), Stage("deep", None, ("--deep",)))


def main() -> int:
    """Print a row for each fault; the exit code is 1 if more than a tenth survived the quick tests,
    or one was not found at all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("results", type=Path, help="a JSON file: what was found so far")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="faults by their number")
    parser.add_argument("--stages", nargs="+", default=[stage.name for stage in STAGES])
    options = parser.parse_args()
    faults = json.loads(FAULTS.read_text(encoding="utf-8"))
    found = json.loads(options.results.read_text()) if options.results.exists() else {}
    stages = [stage for stage in STAGES if stage.name in options.stages]
    with tempfile.TemporaryDirectory() as folder:
        copy, clean = Path(folder, "copy"), Path(folder, "clean")
        copy_to(copy)
        copy_to(clean)
        for fault in faults:
            if options.only and fault["id"] not in options.only:
                continue
            result = found.setdefault(str(fault["id"]), {"survived": [], "found": ""})
            left = [stage for stage in stages if stage.name not in result["survived"]]
            if result["found"] or not left:
                continue
            result["found"] = try_one(copy, clean, fault, left, result["survived"])
            options.results.parent.mkdir(parents=True, exist_ok=True)
            options.results.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{fault['id']:>3} {fault['file']}: {fault['what']}: {result}", flush=True)
    missed = sum("quick" in result["survived"] for result in found.values())
    alive = sum(not result["found"] for result in found.values())
    print(f"{len(found)} faults: {missed} survived the quick tests, {alive} are not found")
    return int(missed > len(found) / 10 or alive > 0)


def copy_to(copy: Path) -> None:
    """What git tracks at HEAD, with the compiled modules of this checkout."""
    run(ROOT, "git", "worktree", "prune")
    run(ROOT, "git", "worktree", "add", "--detach", str(copy), "HEAD")
    for library in ROOT.glob("atlasc/**/_native*.so"):
        (copy / library.relative_to(ROOT)).write_bytes(library.read_bytes())


def try_one(
    copy: Path, clean: Path, fault: dict[str, str], stages: list[Stage], survived: list[str]
) -> str:
    """The first stage that finds a fault, with its test; empty if none does.

    Args:
        copy: gets the fault.
        clean: stays without it: a test that fails here too has found nothing.
        survived: gets the names of the stages that do not find it.
    """
    path = copy / fault["file"]
    text = path.read_text(encoding="utf-8")
    if text.count(fault["old"]) != 1:
        sys.exit(f"the fault {fault['id']} is stale: its text does not stand once in {path.name}")
    path.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    libraries = {file: file.read_bytes() for file in copy.glob("atlasc/**/_native*.so")}
    try:
        if path.suffix in CPP:
            run(copy, sys.executable, "setup.py", "build_ext", "--inplace")
        for stage in stages:
            start, left_out = time.time(), list[str]()
            tests = near(copy, fault["file"], stage)
            while test := failing(copy, tests, stage, left_out):
                if not failing(clean, [test], stage):
                    return f"{stage.name}: {test} after {time.time() - start:.0f} s"
                print(f"{test} fails without a fault", file=sys.stderr, flush=True)
                left_out.append(test)
            survived.append(stage.name)
        return ""
    finally:
        path.write_text(text, encoding="utf-8")
        for file, content in libraries.items():
            file.write_bytes(content)


def near(copy: Path, file: str, stage: Stage) -> list[str]:
    """The test files that depend on a file, as many as fit into the time of a stage."""
    script = (
        "import sys; from tests.suite.near import choose; "
        "print('\\n'.join(choose(sys.argv[1:2], float(sys.argv[2])).near))"
    )
    seconds = "inf" if stage.seconds is None else str(stage.seconds)
    return run(copy, sys.executable, "-c", script, file, seconds).split()


def failing(copy: Path, tests: list[str], stage: Stage, left_out: Iterable[str] = ()) -> str:
    """The test that fails first; empty if none does."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-x", "-q", "--no-header", "-rfE"]
    options = [*stage.options, *(f"--deselect={test}" for test in left_out)]
    done = subprocess.run(
        [*command, *options, *tests],
        cwd=copy,
        env=environment(copy),
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return ""
    words = [line.split(" - ")[0].split(maxsplit=1) for line in done.stdout.splitlines()]
    failed = [word[1] for word in words if len(word) == 2 and word[0] in ("FAILED", "ERROR")]
    if not failed:
        sys.exit(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return failed[0]


def environment(copy: Path) -> dict[str, str]:
    """That of this process, in which Python finds the copy first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(copy / "plugins")))}


def run(folder: Path, *command: str) -> str:
    """What a command prints; it must end with 0."""
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command[:3])} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
