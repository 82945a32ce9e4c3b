"""Processor seconds of each role as a process of its own, on the simulator.

    python -m benchmarks.service.roles BUNDLE INPUTS --runs 5

No real ciphertexts: what is left is what a role takes to start, to read its part of the bundle and
its keys, and to play the program. Prints the median of each role, what importing takes, and how
many files of atlasc a server and a client enter.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.service.entered import entered


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the roles in turn, and print their seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.roles", description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("inputs", type=Path, help="the first input is encrypted")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    rows: dict[str, list[float]] = {}
    files: dict[str, int] = {}
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as place:
            for name, seconds in one_run(options.bundle, options.inputs, Path(place)).items():
                rows.setdefault(name, []).append(seconds)
            if not files:
                files = files_of(options.bundle, Path(place))
    for name, seconds in rows.items():
        told = f", enters {files[name]} files of atlasc" if name in files else ""
        print(f"{name:8} {statistics.median(seconds):6.2f} s{told}")


def one_run(bundle: Path, inputs: Path, place: Path) -> dict[str, float]:
    """Processor seconds of the import, and of each role.

    Args:
        bundle: a whole bundle.
        inputs: a file of inputs.
        place: an empty folder for keys, query and answer.
    """
    keys, query, answer = place / "keys", place / "query", place / "answer"
    client, server = keys / "client", keys / "server"
    commands = {
        "keygen": ("-o", keys),
        "encrypt": ("--keys", client, "--input", inputs, "--count", 1, "-o", query),
        "execute": ("--keys", server, "--query", query, "-o", answer),
        "decrypt": ("--keys", client, "--answer", answer),
    }
    found = {"import": processor_seconds("-c", "import atlasc.api.roles")}
    for name, words in commands.items():
        found[name] = processor_seconds("-m", "atlasc", name, bundle, "--target", "sim", *words)
    return found


def files_of(bundle: Path, place: Path) -> dict[str, int]:
    """The files that server and client enter, from Python, where :func:`one_run` was."""
    query, answer = place / "query", place / "answer"
    return {
        "execute": len(entered("execute", bundle, place / "keys", query, place / "another answer")),
        "decrypt": len(entered("decrypt", bundle, place / "keys", query, answer)),
    }


def processor_seconds(*words: object) -> float:
    """Of a process of Python; raises CalledProcessError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
