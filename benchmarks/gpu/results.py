"""What was measured, as a file that is written after each part (docs/gpu.md has its members)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import Machine

ROOT = Path(__file__).resolve().parents[2]
FORMAT = 1
SOURCES = ("runtime_cuda", "tests/runtime_cuda/conformance", "tests/runtime_cuda/ckks/stand_in",
           "benchmarks/gpu")  # fmt: skip
"""What figures depend on; a part whose sources changed is measured anew."""
EMULATED = "emulated: counts, no seconds of a GPU"


@dataclass(frozen=True)
class Outcome:
    """Of one part.

    Attributes:
        state: done, skipped or failed.
        reason: why it has no figures.
        seconds: that it took.
        figures: by name (:mod:`benchmarks.gpu.figures`).
        sources: digest of what it depends on.
    """

    state: str
    reason: str = ""
    seconds: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)
    sources: str = ""


class Results:
    """The outcomes of a machine, and their file.

    Args:
        path: of the file; one that is there is read, if it is of this machine.
    """

    def __init__(self, path: Path, machine: Machine, sources: str) -> None:
        self.path, self.machine, self.sources = path, machine, sources
        self.outcomes: dict[str, Outcome] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = json.loads(path.read_text("utf-8"))
            if (found["format"], found["machine"]["name"]) == (FORMAT, machine.name):
                self.outcomes = {name: Outcome(**one) for name, one in found["parts"].items()}

    def done(self, name: str) -> bool:
        """Whether a part has figures of today's sources."""
        one = self.outcomes.get(name)
        return one is not None and one.state == "done" and one.sources == self.sources

    def add(self, name: str, outcome: Outcome) -> None:
        """Keep an outcome, in the file too.

        Raises:
            OSError: the file cannot be written; the one before it is unharmed.
        """
        self.outcomes[name] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.record(), indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)

    def record(self) -> dict[str, Any]:
        """The content of the file."""
        return {
            "format": FORMAT,
            "kind": EMULATED if self.machine.emulated else "measured on a GPU",
            "machine": asdict(self.machine),
            "commit": commit(),
            "parts": {name: asdict(one) for name, one in self.outcomes.items()},
        }


def commit() -> str:
    """Of the sources, with a + if they differ from it; empty where Git does not know."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--match="]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def digest_of_sources() -> str:
    """SHA-256 of the files that figures depend on."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".cu", ".h", ".py", ".txt", ".cmake"):
                digest.update(os.fsencode(path.relative_to(ROOT)) + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
