"""Measure the engines on a GPU, in five minutes; without a GPU, count what one would do.

    python -m benchmarks.gpu                      all parts but the whole of BERT-base's shape
    python -m benchmarks.gpu --prepare            on any machine, ahead: compile what parts read
    python -m benchmarks.gpu --budget 300         begin no part that does not fit into 300 s
    python -m benchmarks.gpu --again cuda/digits  measure this part again

Finished parts are kept: after an interrupt the same command goes on. Exit code: 0; 1 if a part
failed; 2 if nothing could be done.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.bundles import prepare
from benchmarks.gpu.figures import recorded, table
from benchmarks.gpu.machine import Machine, find_machine
from benchmarks.gpu.outcome import Failed, Skipped
from benchmarks.gpu.parts import emulated_parts, gpu_parts
from benchmarks.gpu.results import EMULATED, Results, digest_of_sources
from benchmarks.gpu.runner import Part, expected, run_parts

FOLDER = Path("build/gpu")


def arguments_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for builds and results")
    parser.add_argument("--prepare", action="store_true", help="compile what parts read, and end")
    parser.add_argument("--whole", action="store_true", help="all of BERT-base's shape too")
    parser.add_argument("--phantom", type=Path, metavar="PATH", help="sources of Phantom-FHE")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="that all may take")
    parser.add_argument("--again", nargs="+", default=[], metavar="PART", help="measure again")
    parser.add_argument("--emulate", action="store_true", help="look for no GPU")
    return parser.parse_args(words)


def main() -> None:
    """Run the command."""
    given = arguments_of()
    # Programs that were started end with this one, whoever ends it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if given.prepare:
            prepare(given.folder / "bundles", given.whole)
            return
        good = measure(given, find_machine(emulate=given.emulate))
    except KeyboardInterrupt:
        print(f"\ninterrupted; what is done stays in {given.folder}, and the same command goes on")
        raise SystemExit(130) from None
    except (Failed, Skipped) as error:
        raise _no(str(error)) from None
    except OSError as error:
        where = error.filename or given.folder
        raise _no(f"{where}: {error.strerror}; --folder names another folder") from None
    raise SystemExit(0 if good else 1)


def _no(message: str) -> SystemExit:
    print(f"error: {message}", file=sys.stderr)
    return SystemExit(2)


def measure(given: argparse.Namespace, machine: Machine) -> bool:
    """Run the parts of a machine, and print the table; whether none failed.

    Raises:
        Failed: a part of ``--again`` does not exist.
        OSError: results cannot be written.
    """
    if machine.emulated:
        parts = emulated_parts(machine, given.folder)
        reasons = [("--phantom", given.phantom), ("--whole", given.whole)]
        ignored = [name for name, value in reasons if value]
    else:
        parts, ignored = gpu_parts(machine, given.folder, given.phantom, given.whole), []
    if unknown := {*given.again} - {part.name for part in parts}:
        names = " ".join(part.name for part in parts)
        raise Failed(f"there is no part {' or '.join(sorted(unknown))}; parts: {names}")
    results = Results(given.folder / f"{machine.slug}.json", machine, digest_of_sources())
    announce(machine, parts, results, given.again)
    if ignored:
        print(f"{', '.join(ignored)}: skipped, since there is no GPU")
    print()
    good = run_parts(parts, results, budget=given.budget, again=given.again, say=say)
    print("", *table(results.outcomes, machine.name, recorded()), "", sep="\n")
    print(f"written to {results.path}; docs/gpu.md says what to do with it")
    return good


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def announce(
    machine: Machine, parts: Sequence[Part], results: Results, again: Sequence[str]
) -> None:
    """Say where it runs, and what each part is expected to take."""
    if machine.emulated:
        say(f"There is no GPU here. {EMULATED}")
    else:
        say(
            f"{machine.name}, sm_{machine.capability}, {machine.memory_mib} MiB, "
            f"driver {machine.driver}, CUDA {machine.cuda or 'unknown'}"
        )
    left = 0.0
    for part in parts:
        done = results.done(part.name) and not part.always and part.name not in again
        left += 0.0 if done else expected(part, results)
        takes = "done before" if done else f"about {expected(part, results):3.0f} s"
        say(f"  {part.name:20} {takes:11}  {part.title}")
    say(f"  {'all':20} about {left:3.0f} s")


if __name__ == "__main__":
    main()
