"""Runs parts in their order: skips, budgets, failures, and what an earlier run has done."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from benchmarks.gpu.outcome import Failed, Skipped
from benchmarks.gpu.results import Outcome, Results

Say = Callable[[str], None]
Clock = Callable[[], float]


UNCHANGED = 10.0
"""Seconds of a build that finds nothing to do, at most."""


@dataclass(frozen=True)
class Part:
    """Something to measure.

    Attributes:
        name: engine and part: ``cuda/bootstraps``.
        title: what it does.
        seconds: that it is expected to take.
        run: gives the figures. It raises Skipped or Failed, and stops what takes too long.
        after: a part that must be done before.
        always: whether it runs before others even if it is done: a build finds out itself.
    """

    name: str
    title: str
    seconds: float
    run: Callable[[], dict[str, float]]
    after: str = ""
    always: bool = False


def expected(part: Part, results: Results) -> float:
    """Seconds that a part will take, unless it is not run."""
    return min(part.seconds, UNCHANGED) if results.done(part.name) and part.always else part.seconds


def run_parts(
    parts: Sequence[Part],
    results: Results,
    *,
    budget: float | None = None,
    again: Collection[str] = (),
    clock: Clock = time.monotonic,
    say: Say = print,
) -> bool:
    """Run the parts that are not done; whether none failed.

    Args:
        results: of earlier runs; each outcome is added to it at once.
        budget: seconds that all may take: a part that does not fit is not begun.
        again: names of parts that run although they are done.
        clock: gives the time in seconds.
        say: takes a line for each part.
    """
    begun = clock()
    wanted = {part.name for part in parts if part.name in again or not results.done(part.name)}
    wanted -= {part.name for part in parts if part.always}
    wanted |= {part.after for part in parts if part.name in wanted}
    good = True
    for part in parts:
        if part.name not in wanted:
            if not part.always:
                say(f"{part.name}: done before")
            continue
        started = clock()
        left = None if budget is None else budget - (started - begun)
        outcome = _outcome(part, results, left)
        if outcome.state != "skipped":
            outcome = replace(outcome, seconds=clock() - started)
        results.add(part.name, outcome)
        good = good and outcome.state != "failed"
        took = f" in {outcome.seconds:.1f} s" if outcome.state == "done" else f": {outcome.reason}"
        say(f"{part.name}: {outcome.state}{took}")
    return good


def _outcome(part: Part, results: Results, left: float | None) -> Outcome:
    """Without its seconds."""
    before = results.outcomes.get(part.after)
    if part.after and (before is None or before.state != "done"):
        return Outcome("skipped", f"{part.after}: {before.state if before else 'not done'}")
    if left is not None and expected(part, results) > left:
        least = f"takes about {expected(part, results):.0f} s"
        return Outcome("skipped", f"{least}, and {max(left, 0):.0f} s of the budget are left")
    try:
        return Outcome("done", figures=part.run(), sources=results.sources)
    except Skipped as skipped:
        return Outcome("skipped", str(skipped))
    except Failed as failed:
        return Outcome("failed", str(failed))
    except OSError as error:  # a full disk, a folder that is not writable
        return Outcome("failed", ": ".join(filter(None, [error.strerror, error.filename])))
    except Exception as error:  # the other parts go on
        return Outcome("failed", f"{type(error).__name__}: {error}")
