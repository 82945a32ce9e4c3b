"""Hypervolume of search strategies against evaluations and seconds, on MiniLM.

    python benchmarks/search.py [--strategies atlas,hybrid,...] [--seeds 0,1,2] [--share 0.25]
    python benchmarks/search.py --quick

10 real texts of 64 tokens, the paper's ranges with a margin of 5%, and its search space. The
strategies run one after the other, each in a process of its own. What a run has evaluated is kept
in --out: the same command goes on after an interrupt, and finished runs are not repeated.

The paper's full budget takes hours.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "minilm")]

if TYPE_CHECKING:
    from atlasc.passes.search.front import Front
    from atlasc.passes.search.problem import SearchProblem

TEXTS, TOKENS, MARGIN = 10, 64, 0.05
FULL_BUDGET = 24_144
GROUPS = 24
"""Groups of MiniLM's nonlinear ops: four in each of six layers."""
ERRORS = (1e-3, 1e-2)
LEADER = "hybrid"
"""The strategy that is asked when it reached what the others ended with."""
QUICK_SHARE = 0.01


def main() -> None:
    """Run what is missing, then print and draw everything."""
    from atlasc.passes.search.front import COSTS
    from atlasc.passes.search.strategies.named import STRATEGIES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="names, with commas")
    parser.add_argument("--seeds", default="0", help="numbers, with commas")
    parser.add_argument(
        "--share", type=float, default=1.0, help=f"of the full budget of {FULL_BUDGET:,} each"
    )
    parser.add_argument(
        "--evaluations", default="", help="budgets of their own, such as hybrid=400,random=1000"
    )
    parser.add_argument("--cost", choices=COSTS, default="depth")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help=f"the same as --share {QUICK_SHARE}")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-search")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # the child process: one run
    arguments = parser.parse_args()
    share = QUICK_SHARE if arguments.quick else arguments.share
    own = dict(entry.split("=") for entry in arguments.evaluations.split(",") if entry)
    runs = [
        (name, {**budget(name, share, own.get(name)), "seed": int(seed)})
        for seed in arguments.seeds.split(",")
        for name in arguments.strategies.split(",")
    ]
    if arguments.only is not None:
        name, options = runs[int(arguments.only)]
        one(name, options, arguments)
        return
    for index, (name, options) in enumerate(runs):
        if not (folder(arguments, name, options) / "front.json").exists():
            print(f"{name}, {options}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, *sys.argv[1:], "--only", str(index)]
            try:
                subprocess.run(command, check=True)
            except KeyboardInterrupt:
                raise SystemExit("interrupted: the same command goes on") from None
            except subprocess.CalledProcessError as error:
                raise SystemExit(error.returncode) from None
    show(arguments, [load(folder(arguments, name, options)) for name, options in runs])


def budget(name: str, share: float, own: str | None) -> dict[str, int]:
    """Options that give a strategy its evaluations: its own, or a share of the full budget.

    A share of `atlas` has the paper's populations and fewer generations.
    """
    from atlasc.passes.search.strategies.hybrid import default_evaluations
    from atlasc.passes.search.strategies.named import strategy

    usual = strategy(name).make_options({}).evaluations or default_evaluations(GROUPS)
    if name == "atlas" and own is None and share > QUICK_SHARE:
        stages = {"generations": int(51 * share) - 1, "layer_generations": int(226 * share) - 1}
        return {stage: max(generations, 0) for stage, generations in stages.items()}
    return {"evaluations": int(own) if own else min(int(FULL_BUDGET * share), usual)}


def folder(arguments: argparse.Namespace, name: str, options: dict[str, int]) -> Path:
    """Where a run keeps its files."""
    facts = "-".join(f"{key}{value}" for key, value in options.items())
    return Path(arguments.out / f"{name}-{arguments.cost}-{facts}")


def one(name: str, options: dict[str, int], arguments: argparse.Namespace) -> None:
    """Run a strategy, or go on with it."""
    from atlasc.compilation.stages import LATENCY_TARGET
    from atlasc.passes.search.history import Moment, continued
    from atlasc.passes.search.ray_workers import RayWorkers
    from atlasc.passes.search.session import Progress
    from atlasc.passes.search.strategies.named import strategy

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
        now.append(Moment(progress.done, progress.seconds, progress.hypervolume))
        if not before or progress.done > before[-1].evaluations:
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(continued(before, now)[-1]) + "\n")
            print(
                f"\r{name}: {progress.done:,} of {progress.total:,}, hypervolume "
                f"{progress.hypervolume:.4f}  ", end="", file=sys.stderr, flush=True,
            )  # fmt: skip

    problem = replace(
        minilm(),
        cost=arguments.cost,
        threads=arguments.threads,
        workers=RayWorkers(arguments.workers) if arguments.workers else None,
        journal=place / "journal.jsonl",
        target=LATENCY_TARGET if arguments.cost == "latency" else None,
    )
    chosen = strategy(name)
    front = chosen.search(problem, chosen.make_options(options), report)
    print(file=sys.stderr)
    if not front.complete:
        raise SystemExit("interrupted: the same command goes on")
    history = tuple(continued(before, now))
    front = replace(front, history=history, seconds=history[-1].seconds)
    timed(front, problem).save(place / "front.json")


def timed(front: Front, problem: SearchProblem) -> Front:
    """The front with the predicted seconds of its points, whatever cost it was searched for."""
    from atlasc.compilation.stages import LATENCY_TARGET

    objective = replace(problem, target=LATENCY_TARGET).objective()
    points = tuple(replace(p, seconds=objective.seconds(p.settings)) for p in front.points)
    return replace(front, points=points)


def minilm() -> SearchProblem:
    """MiniLM on real texts, with ranges from the same texts."""
    import texts

    from atlasc.loading.data import inputs_from_texts
    from atlasc.loading.models import load_model
    from atlasc.passes.calibration.calibrate import calibrate
    from atlasc.passes.frontend.trace import trace
    from atlasc.passes.search.problem import SearchProblem

    model = load_model(texts.model_directory())
    arrays = inputs_from_texts(texts.windows(TEXTS, TOKENS), model, TOKENS).arrays
    one = {name: array[:1] for name, array in arrays.items()}  # an encrypted run answers one text
    module = trace(model.module, one, name="minilm")
    return SearchProblem(module, calibrate(module, arrays, margin=MARGIN), arrays)


def load(place: Path) -> Front:
    """The front of a finished run."""
    from atlasc.passes.search.front import Front

    return Front.load(place / "front.json")


def show(arguments: argparse.Namespace, fronts: list[Front]) -> None:
    """Print the table; write summary.json and hypervolume.png."""
    from atlasc.cli.output import print_table

    seeds = [int(s) for s in arguments.seeds.split(",") for _ in arguments.strategies.split(",")]
    rows = [
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
    title = (
        f"MiniLM, {TEXTS} texts of {TOKENS} tokens, the paper's space, {arguments.cost} of `is` "
        f"{fronts[0].reference[0]:.4g}; {machine}"
    )
    print_table(list(rows[0]), [list(row.values()) for row in rows], title=title)
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


def overtaken(fronts: list[Front], seeds: list[int]) -> list[dict]:
    """A row for each other run with the leader's seed."""
    from atlasc.passes.search.history import reached

    rows = []
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


def draw(path: Path, fronts: list[Front]) -> None:
    """Hypervolume against evaluations and seconds, a line for each run."""
    from atlasc.passes.search.plots import chart

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


if __name__ == "__main__":
    main()
