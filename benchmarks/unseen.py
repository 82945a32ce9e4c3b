"""Do fronts hold on inputs that no search has seen? MiniLM on windows of 64 tokens.

    python benchmarks/unseen.py [--space wide] [--cost levels] [--prefixes [--short]]

Does what `atlasc search --without prefixes` does with 400 windows: ranges from 320 of them, 80 held
back, settings compared on 20. Then it evaluates the front's cheapest points within some errors on
500 other windows, in batches of 10, and prints for each point its cost, the error of the search,
that on the unseen windows, and in how many batches a value explodes. `--prefixes` does what the
search does by default, and `--short` tries the first words of each unseen window.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "minilm")]

if TYPE_CHECKING:
    from atlasc.compilation.options import SearchOptions
    from atlasc.compilation.prepare import PreparedModel
    from atlasc.search.front import Front
    from atlasc.search.points import Point

TOKENS = 64
TARGET, LARGEST_RATIO = 1e-3, 1.5
LIMITS = {"paper": {"depth": 350}, "wide": {"depth": 315, "levels": 205}}
"""Costs that the cheapest point within an error of 1e-3 should not exceed, by search space."""


def main() -> None:
    """Search, try the front on unseen windows, print, and say what was met."""
    from atlasc.cli.output import print_table
    from atlasc.polynomials.parametrisation import PRESETS
    from atlasc.search.points import COSTS
    from atlasc.search.strategies import DEFAULT, STRATEGIES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--space", choices=PRESETS, default="paper")
    parser.add_argument("--strategy", choices=STRATEGIES, default=DEFAULT)
    parser.add_argument("--evaluations", type=int, default=None, help="of the search")
    parser.add_argument("--cost", choices=COSTS, default="depth")
    parser.add_argument("--margin", type=float, default=None)
    parser.add_argument("--keep-keys", action="store_true", help="do not centre the keys")
    parser.add_argument("--prefixes", action="store_true", help="calibrate on prefixes, too")
    parser.add_argument("--calibrate", type=int, default=320)
    parser.add_argument("--held-back", type=int, default=80)
    parser.add_argument("--unseen", type=int, default=500)
    parser.add_argument("--short", action="store_true", help="try 1 to 40 words of each of them")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--targets", default="1e-2,3e-3,1e-3,3e-4,1e-4", help="or 'all' points")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--journal", type=Path, default=None, help="to go on after an interrupt")
    parser.add_argument("--json", type=Path, default=None, help="write the figures there too")
    arguments = parser.parse_args()

    prepared, front, options = searched(arguments)
    points = chosen(front, arguments.targets)
    errors = unseen_errors(prepared, options, points, arguments)
    rows = [row(point, batches) for point, batches in zip(points, errors, strict=True)]
    print_table(
        list(rows[0]) if rows else ["no point is within the targets"],
        [list(values.values()) for values in rows],
        title=f"MiniLM, {arguments.space} space, {front.strategy}, {front.evaluations} evaluations "
        f"in {front.seconds:.0f} s; {arguments.unseen} unseen windows of {TOKENS} tokens",
    )
    met = verdicts(front, points, errors, arguments.space)
    for text, good in met.items():
        print(f"{'met' if good else 'missed'}: {text}")
    if arguments.json is not None:
        record = {"options": {k: str(v) for k, v in vars(arguments).items()}, "points": rows,
                  "verdicts": met, "batches": [list(map(str, e)) for e in errors],
                  "front": front.to_dict()}  # fmt: skip
        arguments.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def searched(arguments: argparse.Namespace) -> tuple[PreparedModel, Front, SearchOptions]:
    """What the search command makes of the windows."""
    import texts

    from atlasc.api.progress import progress
    from atlasc.compilation.options import SearchOptions
    from atlasc.compilation.prepare import prepare
    from atlasc.compilation.search import search

    given = arguments.calibrate + arguments.held_back
    options = SearchOptions(
        strategy=arguments.strategy,
        evaluations=arguments.evaluations,
        cost=arguments.cost,
        space=arguments.space,
        workers="ray" if arguments.workers else "serial",
        worker_count=arguments.workers,
        threads=arguments.threads,
        centre_keys=not arguments.keep_keys,
        prefixes=arguments.prefixes,
        sequence_length=TOKENS,
        outputs="last_hidden_state",
        margin=arguments.margin,
        held_back=arguments.held_back / given,
        seed=arguments.seed,
    )
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "windows.txt"
        data.write_text("\n".join(texts.windows(given, TOKENS)) + "\n", encoding="utf-8")
        prepared = prepare(str(texts.model_directory()), data, options, progress)
    front = search(
        prepared,
        options,
        progress,
        journal=arguments.journal,
    )
    if not front.complete:
        raise SystemExit("interrupted; with --journal the same command goes on")
    return prepared, front, options


def chosen(front: Front, targets: str) -> list[Point]:
    """The points that a user gets for some errors, cheapest first; equal ones once."""
    from atlasc.ir.errors import AtlasError
    from atlasc.search.front import Wanted

    if targets == "all":
        return list(front.points)
    points = []
    for target in sorted(map(float, targets.split(",")), reverse=True):
        try:
            points.append(front.pick(Wanted(target)))
        except AtlasError as error:
            print(f"{error.what}: {error.why}", file=sys.stderr)
    return list(dict.fromkeys(points))


def unseen_errors(
    prepared: PreparedModel,
    options: SearchOptions,
    points: list[Point],
    arguments: argparse.Namespace,
) -> list[np.ndarray]:
    """Error of each point on each batch of unseen windows; infinite where a value explodes."""
    import texts

    from atlasc.api.progress import progress
    from atlasc.compilation.search import search_problem
    from atlasc.loading.data import inputs_of

    skip = arguments.calibrate + arguments.held_back
    rows = texts.windows(arguments.unseen, TOKENS, skip)
    if arguments.short:
        counts = np.random.default_rng(arguments.seed).integers(1, 41, len(rows))
        rows = [" ".join(row.split()[:count]) for row, count in zip(rows, counts, strict=True)]
    arrays = inputs_of(rows, prepared.source.model, TOKENS).arrays
    problem = search_problem(prepared, options, memory=0)
    found = []
    starts = range(0, arguments.unseen, arguments.batch)
    with progress("trying unseen windows", len(starts)) as step:
        for start in starts:
            batch = {name: a[start : start + arguments.batch] for name, a in arrays.items()}
            objective = replace(problem, arrays=batch, shares=None).objective()
            found.append([objective.evaluate(point.settings).error for point in points])
            step()
    return list(np.array(found).reshape(len(starts), len(points)).T)


def row(point: Point, batches: np.ndarray) -> dict:
    """Figures of a point; all batches but perhaps the last are of one size, all windows too."""
    finite = batches[np.isfinite(batches)]
    mean = float(finite.mean()) if len(finite) else None
    return {
        "depth": point.depth,
        "levels": point.levels,
        "search error": point.error,
        "held back": point.held_back_error,
        "unsafe": point.unsafe,
        "unseen error": mean,
        "ratio": None if mean is None else mean / point.error,
        "worst batch": float(finite.max()) if len(finite) else None,
        "batches not finite": int((~np.isfinite(batches)).sum()),
    }


def verdicts(
    front: Front, points: list[Point], errors: list[np.ndarray], space: str
) -> dict[str, bool]:
    """What should hold, and whether it does."""
    accurate = [point for point in front.points if point.error <= TARGET]
    found = {
        f"{cost} <= {limit} at an error <= {TARGET:g}": any(
            getattr(point, cost) <= limit for point in accurate
        )
        for cost, limit in LIMITS[space].items()
    }
    ratios = [batches.mean() / p.error for p, batches in zip(points, errors, strict=True)]
    worst = max(ratios, default=np.inf)
    found[f"error on unseen windows <= {LARGEST_RATIO} of the search's"] = worst <= LARGEST_RATIO
    found["no batch explodes"] = bool(points) and all(np.isfinite(e).all() for e in errors)
    return {text: bool(good) for text, good in found.items()}


if __name__ == "__main__":
    main()
