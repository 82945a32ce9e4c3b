"""BERT-base on ciphertexts, 128 tokens, recipe `is`: measured beside predicted.

    python -m benchmarks.bert_base                    compile, keys, query, execute, decrypt, print
    python -m benchmarks.bert_base --until query      all that comes before the execution
    python -m benchmarks.bert_base --bundle BUNDLE --input FILE --folder DIR     any other program

After a kill the same command goes on: finished steps are kept, and the execution goes on from its
last saved state. A folder holds one run; delete it to measure anew.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import atlasc
from benchmarks.bert_base.figures import figures, show
from benchmarks.bert_base.steps import EVERY, STEPS, Options

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path("build/bert-base")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bert_base", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for all files")
    parser.add_argument("--bundle", type=Path, help="a program for cpu that atlasc compile wrote")
    parser.add_argument("--input", type=Path, help="of --bundle: its first input is taken")
    parser.add_argument("--every", type=float, default=EVERY, help="seconds between saved states")
    parser.add_argument("--until", choices=STEPS, default=list(STEPS)[-1], help="the last step")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    given = parser.parse_args()
    if (given.bundle is None) != (given.input is None):
        parser.error("--bundle and --input go together")
    places = (given.folder, given.bundle, given.input)
    folder, bundle, data = ("" if place is None else str(place.resolve()) for place in places)
    options = Options(folder, bundle, data, given.every)
    run(options, given.until)
    if given.until == list(STEPS)[-1]:
        try:
            found = figures(options)
        except atlasc.AtlasError as error:
            raise SystemExit(str(error)) from error
        show(found)
        if given.json is not None:
            given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def run(options: Options, until: str) -> None:
    """Run the steps that are not done yet, up to the named one.

    Raises:
        SystemExit: a step failed, and said why; or another process works in the folder.
    """
    place = Path(options.folder)
    place.mkdir(parents=True, exist_ok=True)
    lock = os.open(place, os.O_RDONLY)
    try:
        # Steps inherit the lock: one that outlives this process keeps it.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"another process works in {place}") from None
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    names = list(STEPS)
    for name in names[: names.index(until) + 1]:
        if options.figures(name).exists():
            continue
        print(f"step: {name}", flush=True)
        words = ["-m", "benchmarks.bert_base.steps", name, json.dumps(asdict(options))]
        command = [sys.executable, *words]
        try:
            done = subprocess.run(command, env=environment, pass_fds=(lock,), check=False)
        except KeyboardInterrupt:
            raise SystemExit(f"the same command goes on from what is in {place}") from None
        if done.returncode:
            raise SystemExit(f"{name} ended with code {done.returncode}; the same command goes on")
    if options.figures("execution").exists():
        options.place("state").unlink(missing_ok=True)
    os.close(lock)


if __name__ == "__main__":
    main()
