"""``python -m tests.fuzz``: see docs/fuzzing.md."""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

# Before any library that reads them is imported: one thread a process, so that a fork is safe.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from tests.fuzz import campaign
from tests.fuzz.reader import Reader, all_readers
from tests.fuzz.run import Result, Task, fuzz, shares, show
from tests.fuzz.seeds import compiled, random_programs
from tests.fuzz.sites import openings

INPUTS = 20_000
"""Of a run where nothing else is said."""
LIBRARIES = ("torch", "transformers.models.auto", "torch.export", "pyarrow.parquet", "soundfile")
"""What several readers import, which takes seconds."""


def main() -> int:
    """Run, print, and return the exit code: 1 after a failure."""
    given = _arguments()
    readers = all_readers()
    if given.reader:
        readers = {name: readers[name] for name in given.reader}
    number = given.inputs
    if number is None:
        number = 0 if given.corpus else INPUTS
    what = "the corpus, " if given.corpus else ""
    print(f"{what}{number} inputs, seed {given.seed}, {len(readers)} readers", flush=True)
    compiled()  # once, before the forks
    openings()  # of all code; takes seconds
    if any(name.startswith("ir-") for name in readers):
        random_programs()
    if len(readers) > 1:
        for library in LIBRARIES:
            importlib.import_module(library)
    begin = time.monotonic()
    if given.keep:
        kept = campaign.run(given.keep, readers, number, given.seed, given.again or ())
        results = [one.result for one in kept.readers.values()]
        print(kept.table())
    else:
        results = _run(readers, number, given)
    if given.report:
        given.report.write_text(json.dumps([asdict(result) for result in results], indent=1))
    failed = sum(found.count for result in results for found in result.found)
    kinds = sum(len(result.found) for result in results)
    read, taken = sum(result.inputs for result in results), time.monotonic() - begin
    print(f"{read} inputs, {failed} failures of {kinds} kinds, {taken:.0f} s")
    return 1 if failed else 0


def _run(readers: dict[str, Reader], number: int, given: argparse.Namespace) -> list[Result]:
    """Give all readers their shares, in several processes."""
    inputs = shares(readers, number) if number else dict.fromkeys(readers, 0)
    tasks = [
        Task(
            name,
            given.seed,
            inputs[name],
            given.first,
            given.seconds and given.seconds * given.jobs / len(readers),
            corpus=given.corpus,
            case_seconds=given.case_seconds,
        )
        for name in readers
    ]
    results: list[Result] = []
    with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(fuzz, tasks, chunksize=1):
            for result in found:
                show(result)
            results += found
    return results


def _arguments() -> argparse.Namespace:
    known = sorted(all_readers())
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, help=f"of all readers together ({INPUTS})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of each reader's first input")
    parser.add_argument("--reader", action="append", choices=known, help="this one")
    parser.add_argument("--seconds", type=float, help="stop after so many")
    parser.add_argument(
        "--corpus", action="store_true", help="the cases once found; new ones only with --inputs"
    )
    parser.add_argument(
        "--case-seconds", type=float, help="of made cases as many as a reader takes in so many"
    )
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--report", type=Path, help="write the results as JSON here")
    parser.add_argument(
        "--keep", type=Path, help="one process; keep what was read here, and go on after a kill"
    )
    parser.add_argument("--again", action="append", choices=known, help="begin this one again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
