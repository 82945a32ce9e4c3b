"""What a fuzzed reader tells of itself. docs/fuzzing.md says how to add one."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.content import Content
from tests.fuzz.mutate import mutated

CORPUS, READERS = (Path(__file__).parent / name for name in ("corpus", "readers"))


@dataclass(frozen=True)
class Reader:
    """A function that opens files which somebody else may have written.

    Attributes:
        name: also that of its folder in ``corpus/``.
        seeds: writes valid files or folders into a folder and returns their paths.
        read: opens what lies at a path; returns what it means, or raises AtlasError.
        weight: its share of the inputs, about its inputs a second.
        same: of a reader whose accepted content must be the original's: whether a meaning may be
            accepted beside those of the seeds. None where any content that is accepted is fine.
        mutate: makes an input from the seeds; by the names of the files if nothing else is said.
    """

    name: str
    seeds: Callable[[Path], Sequence[Path]]
    read: Callable[[Path], Any]
    weight: int
    same: Callable[[list[Any], Any], bool] | None = None
    mutate: Callable[[Random, Sequence[Content]], Content] = mutated

    def input(self, seed: int, number: int, seeds: Sequence[Content]) -> Content:
        """The content of an input; the numbers and the seeds alone decide it."""
        return self.mutate(Random(f"{seed} {self.name} {number}"), seeds)


def all_readers() -> dict[str, Reader]:
    """Readers by name: all modules below ``readers/`` have a ``READER`` or ``READERS``."""
    found: dict[str, Reader] = {}
    for path in sorted(READERS.rglob("*.py")):
        module = ".".join(path.relative_to(READERS).with_suffix("").parts)
        content = importlib.import_module(f"tests.fuzz.readers.{module}")
        for reader in getattr(content, "READERS", None) or [content.READER]:
            assert reader.name not in found, reader.name
            found[reader.name] = reader
    return found


def corpus(
    reader: Reader, seeds: Sequence[Content], seconds: float | None = None
) -> dict[str, Content]:
    """The cases that once went wrong: those on disk, and those that a function makes.

    Of the latter a slow reader gets as many as it reads in some ``seconds``, from all kinds. A
    folder on disk lies over a copy of the first seed, if that is a folder as well.
    """
    from tests.fuzz.cases import cases

    found: dict[str, Content] = {}
    for path in sorted((CORPUS / reader.name).glob("*")):
        case = Content.read(path)
        if path.is_dir():
            case = Content(seeds[0].name, {**seeds[0].files, **case.files})
        found[path.name] = case
    made = cases(reader.name, seeds)
    step = 1 if seconds is None else max(1, math.ceil(len(made) / (seconds * reader.weight)))
    return found | dict(itertools.islice(made.items(), 0, None, step))
