"""How a search went: the hypervolume against evaluations and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Moment(NamedTuple):
    """The state of a search after a batch.

    Attributes:
        evaluations: asked for so far, equal ones counted each time.
        seconds: since the start.
        hypervolume: of the front so far; see `Front.hypervolume`.
    """

    evaluations: int
    seconds: float
    hypervolume: float


History = Sequence[Moment]
"""In the order of evaluations."""


def reached(history: History, hypervolume: float) -> Moment | None:
    """The first moment with that hypervolume or more; None when there is none."""
    return next((moment for moment in history if moment.hypervolume >= hypervolume), None)


def continued(before: History, now: History) -> list[Moment]:
    """The history of a search that was interrupted and begun again with its journal.

    What the journal holds costs the second run next to nothing, so the first run's seconds stand
    for it; the later moments follow them.

    Args:
        before: of the first run, up to its interrupt.
        now: of the second, from the start again.
    """
    done = before[-1].evaluations if before else 0
    already = max((m.seconds for m in now if m.evaluations <= done), default=0.0)
    offset = before[-1].seconds - already if before else 0.0
    later = [m._replace(seconds=m.seconds + offset) for m in now if m.evaluations > done]
    return [*before, *later]
