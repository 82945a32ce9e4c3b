"""The strategies one after the other, each in a process of its own, and their fronts in a table.

What a run has evaluated is kept in a folder: the same command goes on after an interrupt, and
finished runs are not repeated.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atlasc.cli.output import print_table
from atlasc.latency.model import LatencyTarget
from atlasc.search.front import Front, Moment, chart
from atlasc.search.search_problem import RayWorkers, SearchProblem
from atlasc.search.strategies.hybrid import default_evaluations
from atlasc.search.strategy import Progress
from atlasc.targets import find_target
from benchmarks.search.problem import problem_of
from benchmarks.search.strategies import STRATEGIES

INPUTS = 10
FULL_BUDGET = 24_144
GROUPS = 24
"""Groups of MiniLM's nonlinear ops: four in each of six layers."""
ERRORS = (1e-3, 1e-2)
LEADER = "hybrid"
"""The strategy that is asked when it reached what the others ended with."""
QUICK_SHARE = 0.01

Run = tuple[str, dict[str, int]]
"""A strategy and its options."""


def runs_of(arguments: Namespace) -> list[Run]:
    """All runs that the command line names."""
    share = QUICK_SHARE if arguments.quick else arguments.share
    own = dict(entry.split("=") for entry in arguments.evaluations.split(",") if entry)
    return [
        (name, {**budget(name, share, own.get(name)), "seed": int(seed)})
        for seed in arguments.seeds.split(",")
        for name in arguments.strategies.split(",")
    ]


def ablation(arguments: Namespace) -> None:
    """Run what is missing, then print and draw everything."""
    runs = runs_of(arguments)
    for index, (name, options) in enumerate(runs):
        if not (folder(arguments, name, options) / "front.json").exists():
            print(f"{name}, {options}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "benchmarks.search", *sys.argv[1:]]
            try:
                subprocess.run([*command, "--only", str(index)], check=True)
            except KeyboardInterrupt:
                raise SystemExit("interrupted: the same command goes on") from None
            except subprocess.CalledProcessError as error:
                raise SystemExit(error.returncode) from None
    places = [folder(arguments, name, options) for name, options in runs]
    show(arguments, runs, [Front.load(place / "front.json") for place in places])


def budget(name: str, share: float, own: str | None) -> dict[str, int]:
    """Options that give a strategy its evaluations: its own, or a share of the full budget.

    A share of `atlas` has the paper's populations and fewer generations.
    """
    usual = STRATEGIES[name]().evaluations or default_evaluations(GROUPS)
    if name == "atlas" and own is None and share > QUICK_SHARE:
        stages = {"generations": int(51 * share) - 1, "layer_generations": int(226 * share) - 1}
        return {stage: max(generations, 0) for stage, generations in stages.items()}
    return {"evaluations": int(own) if own else min(int(FULL_BUDGET * share), usual)}


def folder(arguments: Namespace, name: str, options: dict[str, int]) -> Path:
    """Where a run keeps its files."""
    facts = [name, arguments.cost, *(f"{key}{value}" for key, value in options.items())]
    if arguments.model is not None:
        facts.insert(0, Path(arguments.model).name)
    return Path(arguments.out / "-".join(facts))


def one(name: str, options: dict[str, int], arguments: Namespace) -> None:
    """Run a strategy, or go on with it."""
    place = folder(arguments, name, options)
    place.mkdir(parents=True, exist_ok=True)
    log = place / "history.jsonl"
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    # What follows the last newline was cut off by an interrupt.
    whole = text[: text.rfind("\n") + 1]
    log.write_text(whole, encoding="utf-8")
    before = [Moment(*json.loads(line)) for line in whole.splitlines()]
    now: list[Moment] = []

    def report(progress: Progress) -> None:
        history = progress.front.history
        if len(history) == len(now):
            return  # within a batch
        now.append(history[-1])
        if not before or now[-1].evaluations > before[-1].evaluations:
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(continued(before, now)[-1]) + "\n")
            print(
                f"\r{name}: {now[-1].evaluations:,} of {progress.total:,}, hypervolume "
                f"{progress.front.hypervolume:.4f}  ", end="", file=sys.stderr, flush=True,
            )  # fmt: skip

    problem = replace(
        problem_of(arguments, INPUTS),
        cost=arguments.cost,
        threads=arguments.threads,
        workers=RayWorkers(arguments.workers) if arguments.workers else None,
        journal=place / "journal.jsonl",
        target=LatencyTarget.of(find_target("desilo")) if arguments.cost == "latency" else None,
    )
    front = STRATEGIES[name].of(options).search(problem, report)
    print(file=sys.stderr)
    if not front.complete:
        raise SystemExit("interrupted: the same command goes on")
    history = tuple(continued(before, now))
    front = replace(front, history=history, seconds=history[-1].seconds)
    with_seconds(front, problem).save(place / "front.json")


def with_seconds(front: Front, problem: SearchProblem) -> Front:
    """The front with the predicted seconds of its points, whatever cost it was searched for."""
    objective = replace(problem, target=LatencyTarget.of(find_target("desilo"))).objective()
    points = tuple(replace(p, seconds=objective.seconds(p.settings)) for p in front.points)
    return replace(front, points=points)


def show(arguments: Namespace, runs: Sequence[Run], fronts: list[Front]) -> None:
    """Print the table; write summary.json and hypervolume.png."""
    seeds = [options["seed"] for _, options in runs]
    rows: list[dict[str, Any]] = [
        {
            "strategy": front.strategy,
            "seed": seed,
            "evaluations": front.evaluations,
            "distinct": front.distinct,
            "seconds": front.seconds,
            "hypervolume": front.hypervolume,
            **{f"{front.cost} at {error:g}": cheapest(front, error) for error in ERRORS},
            **{f"predicted at {error:g}": predicted(front, error) for error in ERRORS},
        }
        for front, seed in zip(fronts, seeds, strict=True)
    ]
    machine = f"{os.cpu_count()} processors, {platform.machine()}, Python {sys.version.split()[0]}"
    print_table(
        list(rows[0]),
        [list(row.values()) for row in rows],
        title=f"{arguments.model or 'MiniLM'}, {INPUTS} inputs, space {arguments.space}, "
        f"{arguments.cost} of `is` {fronts[0].reference[0]:.4g}; {machine}",
    )
    against = overtaken(fronts, seeds)
    if against:
        print_table(
            list(against[0]),
            [list(row.values()) for row in against],
            title=f"when {LEADER} reached the final hypervolume of the others",
        )
    record = {
        "machine": machine, "cost": arguments.cost, "runs": rows, "overtaken": against,
        "histories": [[list(moment) for moment in front.history] for front in fronts],
    }  # fmt: skip
    path = arguments.out / "summary.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(arguments.out / "hypervolume.png", fronts)
    print(f"written: {path}, {path.with_name('hypervolume.png')}")


def cheapest(front: Front, error: float) -> float | None:
    """The least cost within an error."""
    return min((p.cost(front.cost) for p in front.points if p.error <= error), default=None)


def predicted(front: Front, error: float) -> float | None:
    """Predicted seconds of the point that `compile` picks within an error."""
    return next((p.seconds for p in front.points if p.error <= error), None)


def overtaken(fronts: Sequence[Front], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each other run with the leader's seed."""
    rows: list[dict[str, Any]] = []
    for leader, seed in zip(fronts, seeds, strict=True):
        for other, same in zip(fronts, seeds, strict=True):
            if leader.strategy != LEADER or other.strategy == LEADER or seed != same:
                continue
            moment = reached(leader.history, other.hypervolume)
            rows.append(
                {
                    "strategy": other.strategy,
                    "seed": seed,
                    "its hypervolume": other.hypervolume,
                    "its evaluations": other.evaluations,
                    "its seconds": other.seconds,
                    f"{LEADER}'s evaluations": moment.evaluations if moment else None,
                    f"{LEADER}'s seconds": moment.seconds if moment else None,
                }
            )
    return rows


def reached(history: Sequence[Moment], hypervolume: float) -> Moment | None:
    """The first moment with that hypervolume or more; None when there is none."""
    return next((moment for moment in history if moment.hypervolume >= hypervolume), None)


def continued(before: Sequence[Moment], now: Sequence[Moment]) -> list[Moment]:
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


def draw(path: Path, fronts: Sequence[Front]) -> None:
    """Hypervolume against evaluations and seconds, a line for each run."""
    names = list(dict.fromkeys(front.strategy for front in fronts))
    with chart(path, 2) as panels:
        for axes, column, label in zip(panels, (0, 1), ("evaluations", "seconds"), strict=True):
            for front in fronts:
                index = names.index(front.strategy)
                x = [max(moment[column], 1e-2) for moment in front.history]
                y = [moment.hypervolume for moment in front.history]
                axes.step(x, y, where="post", color=f"C{index}", label=front.strategy)
            axes.set(xlabel=label, ylabel="hypervolume", xscale="log")
        handles, labels = panels[0].get_legend_handles_labels()
        unique = dict(zip(labels, handles))
        panels[0].legend(unique.values(), unique.keys())
