"""HomomorphicEncryption.org's BERT workload: its nine stages on a small trained model.

python -m benchmarks.he_bert                       train, compile, run our copy of the sequence
python -m benchmarks.he_bert --shape bert-base     the true shape: predicted figures, nothing run
python -m benchmarks.he_bert --shape bert-base --run --pairs 1    the same with random weights, run
python -m benchmarks.he_bert.submission            the folder that the public harness runs
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import atlasc
from atlasc.api.progress import progress
from atlasc.cli.output import print_table
from benchmarks.he_bert import sequence, small_model, true_shape
from benchmarks.he_bert.submission import write_stages


def main() -> None:
    """Command line."""
    arguments = parsed()
    try:
        if arguments.shape and not arguments.run:
            show_shape(arguments)
        else:
            run_stages(arguments)
    except atlasc.AtlasError as error:
        raise SystemExit(str(error)) from error


def parsed() -> argparse.Namespace:
    """Arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.he_bert", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--shape", choices=("bert-base",), help="predict the true shape's figures")
    parser.add_argument("--run", action="store_true", help="run it, with random weights")
    parser.add_argument("--pairs", type=int, default=4, help="pairs that are answered")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--recipe", help="settings instead of a search [with --shape: is]")
    parser.add_argument("--folder", type=Path, default=Path("build/he-bert"), help="for all files")
    found = parser.parse_args()
    if found.pairs < 1:
        parser.error("--pairs must be at least 1")
    return found


def run_stages(arguments: argparse.Namespace) -> None:
    """Make and compile the model that is not there yet, run the sequence, print it."""
    folder, recipe = arguments.folder, arguments.recipe
    name, model = "small-pairs", small_model
    if arguments.shape:
        name, model, recipe = "random-bert-base", true_shape, recipe or "is"
    source = folder / name
    if not (source / "test.jsonl").is_file():
        model.write(source)
    place = folder / f"program-{name}-{arguments.target}-{recipe or 'searched'}"
    if place.is_dir():
        program = atlasc.load(place)
    else:
        program = atlasc.compile(
            source / "model", source / "calibration.jsonl", recipe=recipe,
            target=arguments.target, sequence_length=model.TOKENS,
        )  # fmt: skip
        program.save(place)
    print(program)
    shutil.rmtree(folder / "submissions", ignore_errors=True)
    write_stages(program, folder / "submissions")
    record, path = sequence.run_sequence(folder, source, arguments.pairs)
    show(record)
    print(f"written to {path}")


def show(record: dict[str, Any]) -> None:
    """Print a record as tables."""
    memory = record["Peak Memory"]
    rows = [(name, time, memory.get(name, "")) for name, time in record["Timing"].items()]
    print_table(("step", "seconds", "peak memory"), rows)
    print_table(("what is stored or sent", "size"), list(record["Bandwidth"].items()))
    for name, one in record["Quality"].items():
        print(f"{name}: {one['correct_predictions']} of {one['total_samples']} right")


def show_shape(arguments: argparse.Namespace) -> None:
    """Print the predictions."""
    recipe = arguments.recipe or "is"
    rows = true_shape.predicted(arguments.target, recipe, progress)
    print(f"BERT-base, {true_shape.TOKENS} tokens, two classes, recipe {recipe}: all PREDICTED")
    print_table(("figure", "predicted"), rows)


if __name__ == "__main__":
    main()
