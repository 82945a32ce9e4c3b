"""Gives readers their mutated inputs and the cases of the corpus, and tells what came of them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import worker
from tests.fuzz.content import Content
from tests.fuzz.reader import Reader, all_readers, corpus
from tests.fuzz.sites import followed

RESULTS = Path("build/fuzz")
BATCH = 5000
"""Inputs of one process: what a reader keeps in memory does not add up over all of them."""
NO_SEEDS = "no seeds"
KEPT = 3
"""Inputs that are saved of each kind of failure at each place."""


@dataclass
class Found:
    """Failures of one kind at one place.

    Attributes:
        kind, place: of all of them.
        detail: of the first.
        count: how many inputs.
        inputs: the first of them: numbers, or names of corpus cases.
        saved: where these lie.
    """

    kind: str
    place: str
    detail: str
    count: int = 0
    inputs: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)


@dataclass
class Result:
    """What became of one reader's inputs, or of its cases of the corpus.

    Attributes:
        places: functions that its valid samples went through.
        waited: inputs that took too long once, without computing, and not when they were read
            alone: another process had the processor.
    """

    reader: str
    corpus: bool = False
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    found: list[Found] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)

    def add(self, failure: worker.Failure, label: str, content: Content, results: Path) -> None:
        """Count a failure, and save the first of each kind."""
        same = (f for f in self.found if (f.kind, f.place) == (failure.kind, failure.place))
        one = next(same, None)
        if one is None:
            one = Found(failure.kind, failure.place, failure.detail)
            self.found.append(one)
        one.count += 1
        if len(one.inputs) < KEPT:
            one.inputs.append(label)
            one.saved.append(str(save(results / self.reader, label, content, failure.detail)))


@dataclass(frozen=True)
class Task:
    """One reader's share of a run.

    Attributes:
        name: of the reader.
        seed: of the run.
        inputs: how many.
        first: number of the first one.
        seconds: it ends earlier after so many.
        results: where failing inputs are saved.
        corpus: whether the cases of the corpus come before them.
        case_seconds: see :func:`tests.fuzz.reader.corpus`.
    """

    name: str
    seed: int
    inputs: int
    first: int = 0
    seconds: float | None = None
    results: Path = RESULTS
    corpus: bool = False
    case_seconds: float | None = None


def fuzz(task: Task, reader: Reader | None = None) -> list[Result]:
    """Give a reader its cases and inputs; in a process that may import what it likes."""
    reader = reader or all_readers()[task.name]
    memory = Path("/dev/shm")
    root = tempfile.mkdtemp(
        prefix="atlasc-fuzz-", dir=memory if os.access(memory, os.W_OK) else None
    )
    try:
        return _fuzz(task, reader, Path(root))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fuzz(task: Task, reader: Reader, root: Path) -> list[Result]:
    (root / "seeds").mkdir()
    try:
        paths = reader.seeds(root / "seeds")
        seeds = [Content.read(path) for path in paths]
        with followed() as places:
            meanings = [reader.read(path) for path in paths]
    except Exception as error:
        found = [Found(NO_SEEDS, worker.innermost(error), repr(error), 1)]
        return [Result(reader.name, corpus, found=found) for corpus in (False, True)]
    known = corpus(reader, seeds, task.case_seconds) if task.corpus else {}
    cases = list(known.items())

    def case(number: int) -> tuple[str, Content]:
        return cases[number]

    def mutated(number: int) -> tuple[str, Content]:
        number += task.first
        return f"{task.seed}-{number}", reader.input(task.seed, number, seeds)

    sources = (len(cases), case, True), (task.inputs, mutated, False)
    return [
        _read(
            task,
            Result(reader.name, corpus, places=sorted(places)),
            reader,
            meanings,
            root / "place",
            total,
            source,
        )
        for total, source, corpus in sources
        if total or (corpus and task.corpus)
    ]


def _read(
    task: Task,
    result: Result,
    reader: Reader,
    meanings: list[Any],
    place: Path,
    total: int,
    source: Callable[[int], tuple[str, Content]],
) -> Result:
    """Give a reader inputs 0 to ``total`` of a source, which knows their labels."""
    begin, at = time.monotonic(), 0

    def inputs(first: int) -> Iterator[tuple[int, Content]]:
        for number in range(first, min(first + BATCH, total)):
            if task.seconds is not None and time.monotonic() - begin > task.seconds:
                return
            yield number, source(number)[1]

    def read(given: Iterable[tuple[int, Content]]) -> tuple[list[worker.Failure], int]:
        place.mkdir()
        failures, accepted, refused, last = worker.run(reader, given, meanings, place)
        shutil.rmtree(place)
        result.accepted += accepted
        result.refused += refused
        return failures, last

    while at < total and (task.seconds is None or time.monotonic() - begin <= task.seconds):
        failures, last = read(inputs(at))
        for number in [one.number for one in failures if one.kind == worker.WAITED]:
            failures = [one for one in failures if one.number != number]
            again, _ = read([(number, source(number)[1])])
            failures += again
            result.waited += [] if again else [source(number)[0]]
        for failure in failures:
            result.add(failure, *source(failure.number), task.results)
        if any(failure.kind == worker.BROKEN for failure in failures):
            break
        at = min(at + BATCH, last + 1)
    result.inputs = result.accepted + result.refused + sum(f.count for f in result.found)
    result.seconds = time.monotonic() - begin
    return result


def save(folder: Path, label: str, content: Content, detail: str) -> Path:
    """Write a failing input and what it did; returns the input's place."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / re.sub(r"[^\w.-]+", "-", label)[:100]
    label = base.name
    suffix = "" if "" not in content.files else Path(content.name).suffix
    place = base if label.endswith(suffix) else base.with_name(label + suffix)
    shutil.rmtree(place, ignore_errors=True)
    for name, file in content.files.items():
        path = place / name if name else place
        path.parent.mkdir(parents=True, exist_ok=True)
        data = file if isinstance(file, bytes) else f"a link to {file}\n".encode()
        path.write_bytes(data)
    base.with_name(f"{label}.failure").write_text(detail, encoding="utf-8", errors="replace")
    return place


def shares(readers: dict[str, Reader], inputs: int) -> dict[str, int]:
    """Inputs of each reader, by weight; at least one."""
    whole = sum(reader.weight for reader in readers.values())
    return {name: max(inputs * reader.weight // whole, 1) for name, reader in readers.items()}


def show(result: Result) -> None:
    """Print a line for a reader, and one for each kind of failure."""
    speed = result.inputs / result.seconds if result.seconds else 0
    print(
        f"{result.reader:24} {result.inputs:8} {'cases ' if result.corpus else 'inputs'} "
        f"{result.accepted:8} accepted {result.refused:8} refused {speed:8.0f} a second",
        flush=True,
    )
    for found in sorted(result.found, key=lambda found: -found.count):
        print(f"    {found.count:7} x {found.kind} at {found.place}: {', '.join(found.saved)}")
