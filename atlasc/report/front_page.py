"""The page ``front.html``: which point of a front to take, and by which command."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atlasc.files import write_text
from atlasc.report.charts import error_chart, quality_chart
from atlasc.report.pages import page
from atlasc.report.words import (
    UNIT_WORDS,
    duration,
    gib,
    layers_in_words,
    percent,
    share,
    unit_of,
)
from atlasc.search.front import Front
from atlasc.search.points import Point
from atlasc.simulation.agreement import DESCRIPTIONS, LEAST_AGREEMENT
from atlasc.simulation.intervals import fisher, wilson

EVERY = 3.0
"""Seconds after which the page of a running search is written, and read again."""
MINUTE = 60.0
"""Seconds within which the page first looks for a point; its reader may change them."""


@dataclass(frozen=True)
class Row:
    """A point as the page shows it.

    Attributes:
        index: its place on the front.
        trusted: see `Point.trusted`.
        relative: its error as a share of how answers vary.
        command: what compiles it; empty if there is no such command.
    """

    index: int
    point: Point
    trusted: bool
    relative: float
    held_back: str
    layers: list[tuple[str, str]]
    command: str

    @property
    def name(self) -> str:
        """The number of the point, from 1."""
        return str(self.index + 1)

    @property
    def program(self) -> str:
        """Where the command writes the program, quoted for a shell."""
        return self.command.rpartition(" -o ")[2]

    @property
    def error(self) -> str:
        """The error in per cent of how answers vary."""
        return percent(self.relative)

    @property
    def memory(self) -> str:
        """Memory with its unit; empty if it is not known."""
        return "" if self.point.memory_bytes is None else gib(self.point.memory_bytes)

    @property
    def gib(self) -> str:
        """Memory in GiB."""
        return self.memory.partition(" ")[0] or "–"

    @property
    def same(self) -> str:
        """The share of answers that are the model's; a dash if it is not known."""
        return share(self.point.agreement) or "–"


def front_html(
    front: Front, accurate: float = 0.0, command: Sequence[str] = (), *, running: bool = False
) -> str:
    """The page of a search, with only a few lines of script of its own.

    Args:
        front: the front of the search.
        accurate: an error. The cheapest trusted point with at most this error is recommended, or
            the most accurate one.
        command: the words of a command that compiles a point of the front, without the options that
            name the point and the output; empty if there is none.
        running: whether the search goes on, so that the page reads itself again.
    """
    facts = dict(front.facts)
    found = {
        "strategy": front.strategy,
        "evaluations": f"{front.evaluations:,}, {front.distinct:,} of them different",
        "inputs compared": facts.get("search_inputs"),
        "inputs held back": front.held_back,
        "hypervolume": front.hypervolume,
        **({"duration": duration(front.seconds)} if front.seconds else {}),
        "reference point": f"{front.cost} {front.reference[0]:g}, error {front.reference[1]:g}",
        **{f"option {name}": value for name, value in facts.get("options", {}).items()},
        **{name.replace("_", " "): v for name, v in front.parametrisation.to_dict().items()},
        **{n.replace("_", " "): v for n, v in facts.items() if n not in ("options", "seed")},
    }
    rows = [_row(index, point, front, command) for index, point in enumerate(front.points)]
    recommended = minute = None
    if rows:
        recommended = rows[front.points.index(front.recommended(accurate))]
        minute = _within(rows, MINUTE)
    return page(
        "front.html",
        title=f"{facts.get('model', 'a model')}: which program to take",
        front=front,
        running=EVERY if running else None,
        facts=facts,
        timed=front.cost == "latency" or _all_timed(front),
        booted=any(point.bootstraps is not None for point in front.points),
        unit=_unit(front),
        memory=any(point.memory_bytes is not None for point in front.points),
        points=rows,
        expert=None if front.expert is None else _row(-1, front.expert, front, ()),
        command=bool(command),
        recommended=recommended,
        reason="" if recommended is None else _reason(recommended, front, accurate),
        minute=minute,
        minute_reason=_minute_reason(rows, minute),
        chart=error_chart(front),
        quality=quality_chart(front),
        score=lambda point: share(point.accuracy, _interval(point.accuracy, front)),
        asked=LEAST_AGREEMENT[front.measure],
        meaning=DESCRIPTIONS[front.measure],
        found=found.items(),
        chosen=0 if recommended is None else recommended.index,
    )


class LivePage:
    """The page of a search while it runs, in a file that is replaced as a whole.

    The browser reads the file again by itself, so that nothing serves it. When the block ends, the
    page is that of the last front and reads itself no more.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._next = path, 0.0
        self._front: Front | None = None

    def show(self, front: Front) -> None:
        """Write the front, unless the page is newer than `EVERY`."""
        self._front = front
        if time.monotonic() >= self._next:
            write_text(self._path, front_html(front, running=True))
            self._next = time.monotonic() + EVERY

    def end(self, text: str) -> None:
        """Write the page of the search's result."""
        self._front = None
        write_text(self._path, text)

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *error: object) -> None:
        if self._front is not None:
            write_text(self._path, front_html(replace(self._front, complete=False)))


def _row(index: int, point: Point, front: Front, command: Sequence[str]) -> Row:
    name = "-".join((str(front.facts.get("model", "program")), str(index + 1)))
    words = [*command, "--point", str(index + 1), "-o", name] if command else []
    held_back = point.held_back_error
    return Row(
        index,
        point,
        point.trusted(front.measure),
        point.error / front.variation,
        "" if held_back is None else percent(held_back / front.variation),
        layers_in_words(point.settings, front.parametrisation),
        shlex.join(words),
    )


def _all_timed(front: Front) -> bool:
    """Whether each point has predicted seconds, though the search minimised another cost."""
    return bool(front.points) and all(point.seconds is not None for point in front.points)


def _unit(front: Front) -> tuple[str, float]:
    """The word for the unit of the table's times, and its seconds."""
    known = [point.seconds for point in front.points if point.seconds is not None]
    unit, size = unit_of(min(known, default=0.0))
    return UNIT_WORDS.get(unit, unit), size


def _within(rows: Sequence[Row], seconds: float) -> Row | None:
    """The most accurate trusted point within a time; the page's script finds it in the same way."""
    fast = [row for row in rows if row.trusted and row.point.cost("latency") <= seconds]
    return min(fast, key=lambda row: row.relative, default=None)


def _minute_reason(rows: Sequence[Row], minute: Row | None) -> str:
    if minute is not None:
        return f"The most accurate point within the limit: {duration(minute.point.seconds)}."
    fast = [row for row in rows if row.point.cost("latency") <= MINUTE]
    first = "Every point takes longer."
    if fast:
        first = f"The points within the limit ({len(fast)}) give other answers than the model."
    safe = [row for row in rows if row.trusted and row.point.seconds is not None]
    if not safe:
        return first
    best = min(safe, key=lambda row: row.point.cost("latency"))
    took = duration(best.point.seconds)
    return f"{first} The fastest point with the model's answers is {best.name}: {took}."


def _reason(row: Row, front: Front, accurate: float) -> str:
    """Why a point is recommended."""
    limit = percent(accurate / front.variation)
    if row.point.error <= accurate:
        first = f"The cheapest point whose error is at most {limit} of how answers vary"
    else:
        first = f"No point has an error of at most {limit} of how answers vary; this is the best"
    if not row.trusted:
        return (
            f"{first}. For some inputs its answers are not the model's, and no better point has "
            "them all. Search with more --data or more evaluations."
        )
    if row.point.unsafe is None:
        return f"{first}. It was not tried on held-back inputs."
    same = share(row.point.agreement)
    agreed = "" if same is None else f", and {same} get the model's answer"
    return f"{first}. None of {front.held_back:,} held-back inputs gets a wrong answer{agreed}."


def _interval(accuracy: float | None, front: Front) -> tuple[float, float] | None:
    if accuracy is None or not math.isfinite(accuracy):
        return None
    if front.measure == "values":
        return fisher(accuracy, front.labelled)
    return wilson(accuracy * front.labelled, front.labelled)
