"""Evaluations on disk, one a line: a search that is started again does not repeat them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.front import Point
from atlasc.passes.search.space import Settings

FORMAT = 1


class Journal:
    """An open journal.

    Attributes:
        points: what it holds, by settings.
    """

    def __init__(self, stream: TextIO, points: dict[Settings, Point]) -> None:
        self.points, self._stream = points, stream

    @staticmethod
    def open(path: Path, digest: Callable[[], str]) -> Journal:
        """Open a journal, or begin one.

        Args:
            digest: of the problem that is searched.

        Raises:
            AtlasError: the file is not a journal, or one of another problem.
        """
        header = {"format": FORMAT, "problem": digest()}
        points: dict[Settings, Point] = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            if lines and json.loads(lines[0]) != header:
                raise AtlasError(
                    f"the journal {path} belongs to another search",
                    why="the model, the calibration or the inputs differ",
                    remedy="remove it, or give another path",
                )
            for line in lines[1:]:
                point = _parse(line)
                if point is not None:
                    points[point.settings] = point
            stream = path.open("a", encoding="utf-8")
        except (OSError, ValueError) as error:
            raise AtlasError(f"the journal {path} cannot be used", why=str(error)) from error
        journal = Journal(stream, points)
        if not lines:
            journal._write(json.dumps(header))
        elif not path.read_text(encoding="utf-8").endswith("\n"):
            journal._write("")  # the last line was cut off
        return journal

    def add(self, points: Iterable[Point]) -> None:
        """Append points that are not there yet."""
        for point in points:
            if point.settings not in self.points:
                self.points[point.settings] = point
                entry = [point.depth, point.levels, point.error, point.settings]
                self._write(json.dumps(entry))
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")


def _parse(line: str) -> Point | None:
    """The point of a line; None for one that an interrupt has cut off."""
    try:
        depth, levels, error, settings = json.loads(line)
        return Point(depth, levels, error, tuple(tuple(layer) for layer in settings))
    except (ValueError, TypeError):
        return None
