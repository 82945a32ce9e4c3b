"""Writes ``requirements.lock``: the pins of ``constraints.txt`` with the SHA-256 of their files.

    python packaging/lock.py            # needs uv on the PATH, and PyPI
    python packaging/lock.py --also torch==2.13.0 torch-2.13.0+cpu-cp311-...whl

The hashes are those that PyPI states for all files of a version. ``--also`` adds the files of a
version that another index has, such as torch's builds without CUDA: they are on this disk.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS, LOCK = ROOT / "constraints.txt", ROOT / "requirements.lock"
PYTHON = "3.12"
"""A version of Python that all pins allow, those for older ones as well."""
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
    for newer in (True, False):  # of some packages there is one pin for older Pythons
        for found, hashes in hashes_of(newer).items():
            known.setdefault(found, set()).update(hashes)
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


def hashes_of(newer: bool) -> dict[str, set[str]]:
    """Pin -> SHA-256 of its files, of the pins for newer Pythons or of those for older ones."""
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile("w+") as given:
        chosen = (line.partition(";") for line in pins())
        given.write("\n".join(pin for pin, _, marker in chosen if ("< " in marker) != newer))
        given.flush()
        subprocess.run(
            [
                "uv", "pip", "compile", "--no-config", "--no-deps", "--generate-hashes", "-q",
                "--no-header", "--no-annotate", "--python-version", PYTHON,
                "--python-platform", "x86_64-manylinux_2_35", given.name, "-o", file.name,
            ],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        text = Path(file.name).read_text().replace("\\\n", " ")
    return {
        line.split()[0]: set(re.findall(r"sha256:([0-9a-f]{64})", line))
        for line in text.splitlines()
    }


if __name__ == "__main__":
    main()
