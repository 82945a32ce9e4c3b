"""The default search on models of full size with random weights, and what it takes on larger ones.

    python benchmarks/large.py [--model bert-base] [--evaluations N] [--threads 2]
    python benchmarks/large.py --model llama3-8b --layers 2 --width 256
    python benchmarks/large.py --plan llama3-8b

The shapes are those of examples/configs, the weights transformers' own initialisation, the inputs
random tokens. Prints the seconds of every step, of evaluations that are finite and that are not,
the peak memory, and at last wall-clock and processor time in all. What it has evaluated and spent
is kept in --out: the same command goes on after an interrupt, and adds up.

--plan runs nothing: it reads parameters, bytes and operations off the module that is traced from
the configuration alone, and prints what a search takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import large_plan
import numpy as np

from atlasc.calibration.calibrate import calibrate
from atlasc.passes.frontend.trace import ShapeSpec, trace
from atlasc.polynomials.parametrisation import PRESETS
from atlasc.search.points import COSTS, is_partial
from atlasc.search.search_problem import SNAPSHOT_MEMORY, Objective, SearchProblem
from atlasc.search.strategies.hybrid import Hybrid

if TYPE_CHECKING:
    import torch

    from atlasc.search.points import Point, Settings
    from atlasc.search.strategy import Progress

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "examples" / "configs"
INPUTS, TOKENS, MARGIN, SEED = 10, 128, 0.05, 0
LIMIT_MINUTES = 30
ERRORS = (1e-1, 1e-2, 1e-3, 1e-4)


def main() -> None:
    """Command line."""
    names = sorted(path.name for path in CONFIGS.iterdir() if path.name != "vit-base")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=names, default="bert-base")
    parser.add_argument("--plan", choices=names, help="print what a search takes, run nothing")
    parser.add_argument("--layers", type=int, default=None)
    parser.add_argument("--width", type=int, default=None, help="of hidden states; all else scales")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--evaluations", type=int, default=None,
                        help="[default: three for each group of ops, and 328]")  # fmt: skip
    parser.add_argument("--space", choices=PRESETS, default="paper")
    parser.add_argument("--cost", choices=[cost for cost in COSTS if cost != "latency"],
                        default="depth")  # fmt: skip
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=int, default=SNAPSHOT_MEMORY >> 20,
                        help="MiB of values kept for settings that begin alike")  # fmt: skip
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-large")
    arguments = parser.parse_args()
    if arguments.plan is not None:
        shape = (1, arguments.tokens)
        specs = {"input_ids": ShapeSpec(shape), "attention_mask": ShapeSpec(shape)}
        bare = trace(build(arguments.plan, arguments, meta=True), specs, name="large")
        large_plan.show(bare, arguments)
    else:
        run(arguments)


def build(name: str, arguments: argparse.Namespace, *, meta: bool = False) -> torch.nn.Module:
    """The base model of a configuration, of which layers and width may be others.

    Heads keep the number that share one key, and where possible their width.
    """
    import torch

    from atlasc.loading.model_files import huggingface

    with huggingface.quiet_transformers() as transformers:
        config, _ = huggingface.read_config(CONFIGS / name)
        model_class = transformers.AutoModel._model_mapping[type(config)]
        config.num_hidden_layers = arguments.layers or config.num_hidden_layers
        if arguments.width is not None:
            heads = config.num_attention_heads
            shared = heads // getattr(config, "num_key_value_heads", heads)
            scaled = max(1, heads * arguments.width // config.hidden_size // shared) * shared
            ratio = config.intermediate_size / config.hidden_size
            if hasattr(config, "num_key_value_heads"):
                config.num_key_value_heads = scaled // shared
                config.head_dim = arguments.width // scaled
            config.num_attention_heads, config.hidden_size = scaled, arguments.width
            config.intermediate_size = int(ratio * arguments.width)
        torch.manual_seed(SEED)
        return huggingface.build(config, model_class, meta=meta).eval()


def run(arguments: argparse.Namespace) -> None:
    """Build, calibrate, search and print."""
    place = folder(arguments)
    place.mkdir(parents=True, exist_ok=True)
    lap = Lap()
    spent = Spent(place / "spent.json", lap.started)
    model: Any = build(arguments.model, arguments)
    generator = np.random.default_rng(SEED)
    shape = (arguments.inputs, arguments.tokens)
    ids = generator.integers(model.config.vocab_size, size=shape)
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    lap("build")
    module = trace(model, {name: array[:1] for name, array in arrays.items()}, name="large")
    del model
    lap("trace")
    calibration = calibrate(module, arrays, margin=MARGIN)
    lap("calibrate")
    timed = TimedProblem(
        module,
        calibration,
        arrays,
        arguments.cost,
        parametrisation=PRESETS[arguments.space],
        threads=arguments.threads,
        memory=arguments.memory << 20,
        journal=place / "journal.jsonl",
    )

    def progress(now: Progress) -> None:
        spent.note()
        report(now)

    front = Hybrid(SEED, arguments.evaluations).search(timed, progress)
    spent.note()
    print(file=sys.stderr)
    lap(f"search, {front.evaluations} evaluations")
    for kind, times in timed.times.items():
        if times:
            wall, processor = np.mean(times, axis=0)
            print(f"  {len(times)} {kind}: {wall:.2f} s each, {processor:.2f} s of processor time")
    times = [time for kind in timed.times.values() for time in kind]
    rest = front.seconds - sum(wall for wall, _ in times)
    print(f"  all else (capture, local errors, predictions): {rest:.0f} s")
    # Of a batch that was interrupted more was evaluated than the search knows of.
    known = max(0, front.distinct - len(times))
    if known:
        print(f"  {known} evaluations were known from earlier runs")
    print(f"{len(front.points)} points, hypervolume {front.hypervolume:.4f}")
    for error in ERRORS:
        found = [point.cost(front.cost) for point in front.points if point.error <= error]
        print(f"  least {front.cost} at an error <= {error:g}: {min(found, default=None)}")
    minutes, processor = spent.total / 60
    if front.complete:
        verdict = "met" if minutes < LIMIT_MINUTES else "missed"
        print(f"{verdict}: a front in under {LIMIT_MINUTES} minutes")
    else:
        print("interrupted: the same command goes on")
    runs = f", in {spent.runs} runs" if spent.runs > 1 else ""
    print(f"{minutes:.1f} minutes in all, {processor:.1f} of processor time, "
          f"{arguments.threads} threads{runs}")  # fmt: skip


def folder(arguments: argparse.Namespace) -> Path:
    """Where a run keeps its files: one for each model and search."""
    facts = (
        arguments.model, arguments.layers, arguments.width, arguments.tokens, arguments.inputs,
        arguments.space, arguments.cost, arguments.evaluations,
    )  # fmt: skip
    return Path(arguments.out / "-".join(str(fact) for fact in facts if fact is not None))


def report(now: Progress) -> None:
    """One line that is written over."""
    print(
        f"\r{now.done} of {now.total}, {now.front.seconds:.0f} s, "
        f"hypervolume {now.front.hypervolume:.4f}  ",
        end="", file=sys.stderr, flush=True,
    )  # fmt: skip


class Lap:
    """Prints the seconds of steps and the peak memory so far."""

    def __init__(self) -> None:
        self.started = self.last = clocks()

    def __call__(self, what: str) -> None:
        """After each step."""
        wall, processor = clocks() - self.last
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{what}: {wall:.1f} s, {processor:.1f} s of processor time, {peak:.2f} GiB at most",
              flush=True)  # fmt: skip
        self.last = clocks()


class Spent:
    """Wall-clock and processor seconds of all runs of one search, kept in a file.

    Attributes:
        total: seconds so far, [2].
        runs: how many there were, this one included.
    """

    def __init__(self, path: Path, started: np.ndarray) -> None:
        self._path, self._started = path, started
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self._before = np.array(before.get("seconds", [0.0, 0.0]))
        self.runs = before.get("runs", 0) + 1
        self.total = self._before

    def note(self) -> None:
        """Write down what was spent until now."""
        self.total = self._before + clocks() - self._started
        record = {"seconds": self.total.tolist(), "runs": self.runs}
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(record) + "\n", encoding="utf-8")
        draft.replace(self._path)


def clocks() -> np.ndarray:
    """Wall-clock and processor seconds: other processes may take a share of the processors."""
    return np.array([time.perf_counter(), time.process_time()])


@dataclass(frozen=True)
class TimedProblem(SearchProblem):
    """A problem that notes both times of each evaluation by what it was."""

    times: dict[str, list[np.ndarray]] = field(
        default_factory=lambda: {"probes": [], "finite": [], "not finite": []}
    )

    def objective(self, layers: int | None = None) -> Objective:
        """The objective, with a clock around its evaluations."""
        objective = super().objective(layers)
        objective.points = self._timed(objective.points)  # type: ignore[method-assign]
        return objective

    def _timed(
        self, points: Callable[[Sequence[Settings]], Iterator[Point]]
    ) -> Callable[[Sequence[Settings]], Iterator[Point]]:
        def timed(settings: Sequence[Settings]) -> Iterator[Point]:
            found = points(settings)
            while True:
                started = clocks()
                point = next(found, None)
                if point is None:
                    return
                kind = "finite" if point.valid else "not finite"
                kind = "probes" if is_partial(point.settings) else kind
                self.times[kind].append(clocks() - started)
                yield point

        return timed


if __name__ == "__main__":
    main()
