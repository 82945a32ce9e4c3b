"""A long run of the fuzzers that goes on after a kill: one process, piece by piece, kept in a file.

    python -m tests.fuzz --keep build/fuzz/kept.json --seed 4300 --inputs 1000000

Each reader gets its share of the inputs, and at least 10,000 or what it reads in 100 s. Readers
take turns, so that all of them are some way along at any time. The same command goes on where the
file ends; a reader that was mended begins again with ``--again READER``.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from atlasc.files import write_text
from tests.fuzz.reader import Reader
from tests.fuzz.run import NO_SEEDS, Found, Result, Task, fuzz, shares, show
from tests.fuzz.seeds import ROOT
from tests.fuzz.worker import BROKEN

LEAST, LEAST_SECONDS = 10_000, 100
"""Inputs of each reader at least, unless it takes so many seconds for fewer."""
PIECE, PIECE_SECONDS = 20_000, 60
"""Inputs of one process, or what a slow reader reads in so many seconds."""


@dataclass
class Progress:
    """What a reader has read.

    Attributes:
        wanted: inputs in all.
        done: the numbers below it were read.
        commits: of the trees that read them.
        result: what came of them.
    """

    wanted: int
    done: int
    commits: list[str]
    result: Result

    @property
    def left(self) -> float:
        """The share of its inputs that it has not read."""
        return 1 - self.done / self.wanted

    def add(self, more: Result, count: int, commit: str) -> None:
        """Add the result of so many inputs."""
        one = self.result
        self.result = replace(
            more,
            inputs=one.inputs + more.inputs,
            accepted=one.accepted + more.accepted,
            refused=one.refused + more.refused,
            seconds=one.seconds + more.seconds,
            found=one.found + more.found,
            waited=one.waited + more.waited,
            places=[],
        )
        self.done += count
        self.commits = sorted({*self.commits, commit})


@dataclass
class Campaign:
    """All readers' progress under one seed; ``date`` is that of the last piece."""

    seed: int
    date: str = ""
    readers: dict[str, Progress] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> Campaign:
        """The campaign in a file."""
        facts: dict[str, Any] = json.loads(path.read_text())
        found = Campaign(facts["seed"], facts["date"])
        for name, one in facts["readers"].items():
            result = Result(**one["result"])
            result.found = [Found(**known) for known in one["result"]["found"]]
            found.readers[name] = Progress(one["wanted"], one["done"], one["commits"], result)
        return found

    def table(self) -> str:
        """A table in Markdown: a row for each reader, then their sum."""
        lines = ["| Reader | inputs | accepted | refused | failed |", "|---|---:|---:|---:|---:|"]
        results = [one.result for _, one in sorted(self.readers.items())]
        failed = [sum(found.count for found in one.found) for one in results]
        for one, wrong in zip(results, failed, strict=True):
            counts = f"{one.inputs:,} | {one.accepted:,} | {one.refused:,} | {wrong:,}"
            lines.append(f"| `{one.reader}` | {counts} |")
        inputs, accepted = (sum(x) for x in zip(*((o.inputs, o.accepted) for o in results)))
        refused = sum(one.refused for one in results)
        lines.append(f"| all | {inputs:,} | {accepted:,} | {refused:,} | {sum(failed):,} |")
        return "\n".join(lines)


def planned(readers: dict[str, Reader], inputs: int) -> dict[str, int]:
    """Inputs of each reader: by weight, and no fewer than the least of each."""
    least = {name: min(LEAST, one.weight * LEAST_SECONDS) for name, one in readers.items()}
    return {name: max(count, least[name]) for name, count in shares(readers, inputs).items()}


def run(
    path: Path, readers: dict[str, Reader], inputs: int, seed: int, again: Iterable[str] = ()
) -> Campaign:
    """Go on with the campaign in a file, or begin one; it is written after each piece.

    Args:
        path: the file.
        readers: those that read.
        inputs: of all readers together, where none needs more to have its least.
        seed: of a new campaign; that of the file must be the same.
        again: readers that begin again.

    Raises:
        ValueError: the file has another seed.
    """
    campaign = Campaign.load(path) if path.exists() else Campaign(seed)
    if campaign.seed != seed:
        raise ValueError(f"{path} has seed {campaign.seed}")
    for name, wanted in planned(readers, inputs).items():
        if name in again or name not in campaign.readers:
            campaign.readers[name] = Progress(wanted, 0, [], Result(name))
        campaign.readers[name].wanted = wanted
    commit = _commit()

    def next_one() -> str:
        """The reader that is least far; of several the quickest."""
        return max(readers, key=lambda one: (campaign.readers[one].left, readers[one].weight))

    while campaign.readers[name := next_one()].left > 0:
        progress = campaign.readers[name]
        count = min(piece(readers[name]), progress.wanted - progress.done)
        task = Task(name, seed, count, progress.done, results=path.with_suffix(""))
        result = _apart(task)[0]
        show(result)
        for found in result.found:
            if found.kind in (NO_SEEDS, BROKEN):
                raise RuntimeError(f"{name}: {found.kind}: {found.detail}")
        progress.add(result, count, commit)
        campaign.date = time.strftime("%Y-%m-%d")
        write_text(path, json.dumps(asdict(campaign), indent=1))
    return campaign


def piece(reader: Reader) -> int:
    """Inputs of one process."""
    return min(PIECE, reader.weight * PIECE_SECONDS)


def _apart(task: Task) -> list[Result]:
    """Run a task in a process that ends with it."""
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        return pool.apply(fuzz, (task,))


def _commit() -> str:
    """Of the tree; with a plus sign if files differ from it."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=8", "--dirty=+"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
