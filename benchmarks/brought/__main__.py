"""What a program answers of a model that its user trained, beside the torch module itself.

    python -m benchmarks.brought                                  # all four
    python -m benchmarks.brought lakes --encrypted 4              # and four inputs on ciphertexts
    python -m benchmarks.brought bert --programs build/brought --recipe is

Trains a Transformer of its own classes on series of channels, a DistilBERT of reviews, an ALBERT of
reactions and a BERT of antibodies, on inputs that this script makes. Compiles each with the
defaults, as a user does: from memory, on inputs of the source that it was trained on. Then it takes
inputs of that source and of another one through `check` and `evaluate`, and asks the torch module
itself about each of them, alone and eagerly. For each source it prints

    safe, undecided, unsafe   what `check` says
    module, program           share of right classes: of the torch module, and of the polynomials,
                              from `evaluate`, over all inputs, unsafe ones too
    safe but wrong            safe inputs whose class is not the torch module's, with the errors
                              that bootstraps add (`benchmarks/fidelity/noisy.py`)
    undecided, wrong          the same of the undecided ones
    largest error             mean over the logits of one answer, of a safe input

Exit code 1: a safe answer is wrong, or accuracy differs by more than half a point.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import atlasc
from atlasc.cli.output import print_json, print_table
from benchmarks.brought.models import MODELS, Brought
from benchmarks.brought.sources import Rows, with_labels
from benchmarks.fidelity.noisy import NoisyProgram

CALIBRATION = 400
"""Inputs that a program is compiled on."""
MOST_APART = 0.005 + 1e-9
"""Greatest difference of the accuracies of program and module; one in 200 is not more."""
SOURCES = {"as trained": False, "another source": True}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("models", nargs="*", help=f"{', '.join(MODELS)} [default: all]")
    named("--inputs", type=int, default=400, help="of each source")
    named("--encrypted", type=int, default=0, help="inputs of each source on ciphertexts")
    named("--recipe", help="instead of a search")
    named("--programs", type=Path, help="keep the programs here")
    named("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in chosen.models or MODELS:
        found = measured(name, MODELS[name](), chosen)
        rows += found
        if not chosen.json:
            print_table([*found[0]], [[_shown(cell) for cell in one.values()] for one in found])
    if chosen.json:
        print_json(rows)
    wrong = sum(one["safe but wrong"] for one in rows)
    apart = max(abs(one["module"] - one["program"]) for one in rows)
    safe = sum(one["safe"] for one in rows)
    print(
        f"{wrong} of {safe} safe answers are not the torch module's; accuracy differs by at most "
        f"{100 * apart:.2f} points",
        file=sys.stderr,
    )
    raise SystemExit(1 if wrong or apart > MOST_APART else 0)


def measured(name: str, brought: Brought, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """One row of figures for each source."""
    program = atlasc.compile(
        brought.module, brought.rows(CALIBRATION, 1).inputs, tokenizer=brought.tokenizer,
        sequence_length=brought.length, recipe=chosen.recipe, progress=True,
    )  # fmt: skip
    if chosen.programs is not None:
        program.save(chosen.programs / name)
    rows = []
    for source, shifted in SOURCES.items():
        some = brought.rows(chosen.inputs, 2, shifted=shifted)
        figures = of_source(program, brought, some, chosen.encrypted)
        rows.append({"model": name, "source": source, "inputs": chosen.inputs, **figures})
    return rows


def of_source(
    program: atlasc.Program, brought: Brought, rows: Rows, encrypted: int
) -> dict[str, Any]:
    """Figures of a program on labelled inputs beside the module's own answers."""
    module = brought.answers(rows)
    kinds = np.array([one.kind for one in program.check(rows.inputs)])
    found = program.evaluate(with_labels(rows, brought.names), encrypted=encrypted)
    noisy = NoisyProgram(program.bundle)
    arrays = program.inputs(rows.inputs).arrays
    (answers,) = noisy.run_with_errors(noisy.prepare(arrays)).values()
    same = answers.argmax(-1) == module.argmax(-1)
    safe = kinds == "safe"
    errors = np.abs(answers - module).mean(-1)[safe]
    figures = {kind: int((kinds == kind).sum()) for kind in ("safe", "undecided", "unsafe")}
    figures |= {
        "module": float((module.argmax(-1) == rows.labels).mean()),
        "program": found.accuracy,
        "safe but wrong": int((safe & ~same).sum()),
        "undecided, wrong": int(((kinds == "undecided") & ~same).sum()),
        "largest error": float(errors.max(initial=0.0)),
    }
    if encrypted:
        stage = found.stage("ciphertexts")
        figures |= {"encrypted": stage.inputs, "agree": stage.agreement}
        figures |= {"seconds": stage.seconds}
    return figures


def _shown(cell: Any) -> Any:
    return f"{cell:.4g}" if isinstance(cell, float) else cell


if __name__ == "__main__":
    main()
