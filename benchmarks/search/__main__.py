"""The paper's ablation of search strategies and its study of surrogates (Figure 5).

    python -m benchmarks.search                        both, on MiniLM: hours
    python -m benchmarks.search --quick                both with small budgets: minutes
    python -m benchmarks.search --parts ablation --strategies atlas,hybrid --seeds 0,1,2
    python -m benchmarks.search --parts study --model MODEL --data FILE

The ablation runs every strategy on 10 real texts of 64 tokens. It prints hypervolumes, and when the
default strategy had reached what the others ended with. The study prints how well cheaper errors,
on fewer inputs or after fewer layers, rank settings. Files are written to --out: the same command
goes on after an interrupt.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from atlasc.api.progress import progress
from atlasc.polynomials.parametrisation import PRESETS
from atlasc.search.points import COSTS
from benchmarks.search.ablation import FULL_BUDGET, QUICK_SHARE, ablation, one, runs_of
from benchmarks.search.problem import ROOT, problem_of
from benchmarks.search.strategies import STRATEGIES
from benchmarks.search.study import FEWEST, StudyOptions, show, study

PARTS = {"ablation", "study"}
QUICK_INPUTS, QUICK_SETTINGS = 10, 6


def main() -> None:
    """Command line."""
    arguments = parsed()
    if arguments.only is not None:
        name, options = runs_of(arguments)[arguments.only]
        one(name, options, arguments)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    if "ablation" in arguments.parts:
        ablation(arguments)
    if "study" in arguments.parts:
        run_study(arguments)


def parsed() -> argparse.Namespace:
    """The arguments."""
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.search", description=description, epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--parts", type=_parts, default=PARTS, help="ablation, study or both")
    parser.add_argument("--model", help="another model than MiniLM")
    parser.add_argument("--data", type=Path, help="its inputs")
    parser.add_argument("--sequence-length", type=int, help="of its texts")
    parser.add_argument("--space", choices=PRESETS, default="paper")
    parser.add_argument("--quick", action="store_true", help="small budgets: shows that all works")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench-search")
    group = parser.add_argument_group("ablation")
    group.add_argument("--strategies", default=",".join(STRATEGIES), help="names, with commas")
    group.add_argument("--seeds", default="0", help="numbers, with commas")
    group.add_argument(
        "--share", type=float, default=1.0, help=f"of the full budget of {FULL_BUDGET:,} each; "
        f"{QUICK_SHARE} with --quick",
    )  # fmt: skip
    group.add_argument(
        "--evaluations", default="", help="budgets of their own, such as hybrid=400,random=1000"
    )
    group.add_argument("--cost", choices=COSTS, default="depth")
    group.add_argument("--threads", type=int)
    group.add_argument("--workers", type=int, help="processes of Ray that evaluate")
    group.add_argument("--only", type=int, help=argparse.SUPPRESS)  # the child process: one run
    group = parser.add_argument_group("study")
    group.add_argument("--study-inputs", type=int, default=100, help="of the true error")
    group.add_argument("--study-settings", type=int, default=60, help=f"{FEWEST} or more")
    group.add_argument("--seed", type=int, default=0, help="fixes the settings and the inputs")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.strategies.split(",")) - set(STRATEGIES))
    if unknown:
        parser.error(f"there is no strategy {unknown[0]!r}: {', '.join(STRATEGIES)}")
    if (arguments.model is None) != (arguments.data is None):
        parser.error("--model and --data belong together")
    arguments.out = arguments.out.resolve()
    return arguments


def _parts(text: str) -> set[str]:
    parts = set(text.split(","))
    if not parts <= PARTS:
        raise argparse.ArgumentTypeError(f"{text} is not ablation, study or both with a comma")
    return parts


def run_study(arguments: argparse.Namespace) -> None:
    """Compare surrogates; print the result, and write study.json and study.png."""
    inputs, settings = arguments.study_inputs, arguments.study_settings
    if arguments.quick:
        inputs, settings = QUICK_INPUTS, QUICK_SETTINGS
    problem = problem_of(arguments, inputs)
    with progress("comparing surrogates") as step:
        found = study(problem, StudyOptions(arguments.seed, settings), step.report)
    path = arguments.out / "study.json"
    path.write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    found.plot(path.with_suffix(".png"))
    show(found)
    print(f"written: {path}, {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
