"""Writes ``requirements.lock``: the pins of ``constraints.txt`` with the SHA-256 of their files.

    python packaging/lock.py            # needs uv on the PATH, and PyPI
    python packaging/lock.py --also torch==2.13.0 torch-2.13.0+cpu-cp311-...whl

The pins must be possible for each version of Python, and the lock is whole: uv is asked for both.
The hashes are those that PyPI states for all files of a version. ``--also`` adds the files of a
version that another index has, such as torch's builds without CUDA: they are on this disk.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS, LOCK = ROOT / "constraints.txt", ROOT / "requirements.lock"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Versions of Python, from the first release of each on."""
UV = (
    "uv", "pip", "compile", "--no-config", "-q", "--no-header", "--no-annotate",
    "--python-platform", "x86_64-manylinux_2_35",
)  # fmt: skip
HEAD = """\
# The pins of constraints.txt with the SHA-256 of all their files: packaging/lock.py writes this.
# pip install --require-hashes --no-deps -r requirements.lock
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--also", nargs="+", metavar=("PIN", "FILE"), default=[""])
    pin, *files = parser.parse_args().also
    known: dict[str, set[str]] = {}
    for version in VERSIONS:
        found = hashes_of(version)
        known |= found
        if lacking := closure(version) - set(found):
            sys.exit(f"on Python {version} the pins lack {', '.join(sorted(lacking))}")
    if pin:
        known[pin].update(hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files)
    LOCK.write_text(HEAD + "".join(entry(line, known) for line in pins()))


def pins() -> list[str]:
    """The lines of the pins, with markers."""
    return [line for line in PINS.read_text().splitlines() if line and line[0] != "#"]


def entry(line: str, known: dict[str, set[str]]) -> str:
    """A pin with its hashes."""
    hashes = sorted(known[line.partition(";")[0].strip()])
    return " \\\n    ".join([line, *(f"--hash=sha256:{one}" for one in hashes)]) + "\n"


def hashes_of(version: str) -> dict[str, set[str]]:
    """Pin -> SHA-256 of its files, of the pins for a version of Python."""
    lines = compiled(version, "--no-deps", "--generate-hashes", PINS).replace("\\\n", " ")
    return {
        line.split()[0]: set(re.findall(r"sha256:([0-9a-f]{64})", line))
        for line in lines.splitlines()
    }


def closure(version: str) -> set[str]:
    """What the project with all its extras installs on a version of Python."""
    return set(compiled(version, "--all-extras", "-c", PINS, ROOT / "pyproject.toml").splitlines())


def compiled(version: str, *words: object) -> str:
    """What uv resolves for a version of Python; it must be possible."""
    command = [*UV, "--python-version", version, *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
