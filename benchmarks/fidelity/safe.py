"""Are the answers to inputs that a program calls safe the model's own?

    python -m benchmarks.fidelity.safe                                  # minilm digits tiny_llama
    python -m benchmarks.fidelity.safe reactions --reactions build/reactions
    python -m benchmarks.fidelity.safe minilm --programs build/safe --points 3

Compiles each model with the defaults, on inputs of one source. Then it takes inputs of at least two
other sources, and compares what an encrypted run would give (`noisy.py`) with the answers of
HuggingFace. For each source it prints

    safe, undecided, unsafe    what the verdict says of the inputs
    agree                      the share of the safe ones with the model's answer: the same class,
                               or a cosine of at least 0.995; of tokens where these have classes
    interval                   that this share is in, with 95% confidence
    largest error              of a safe one, and what the program states
    beyond                     safe ones that err by more than is stated

`--points` does the same for so many more points of the program's front, from its cheapest one on
that is not red: a point that is not red says that its answers agree.

Exit code 1: less than 99.5% of the safe inputs of a source agree, or one errs by more than stated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_json, print_table
from atlasc.client.program import batches, rows_of
from atlasc.client.verdict import verdicts
from atlasc.simulation.agreement import Promise, compared
from atlasc.simulation.intervals import wilson
from benchmarks.fidelity import sources
from benchmarks.fidelity.measure import CHUNK, HuggingFace
from benchmarks.fidelity.noisy import NoisyProgram
from benchmarks.fidelity.sources import CALIBRATION

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "tiny_llama"))
import corpus

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEAST = 0.995
"""Share of the safe inputs whose answers must agree with the model's."""
COLUMNS = (
    "source", "inputs", "safe", "undecided", "unsafe", "agree", "interval", "largest error",
    "stated", "beyond",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model, what it is compiled on, and what its program is tried on.

    Attributes:
        model: its HuggingFace directory.
        data: for calibration and search.
        tried: inputs by the name of their source.
        length: tokens of the program; None for images.
        outputs: of the program; None for the model's own.
    """

    model: Path
    data: Any
    tried: Mapping[str, Any]
    length: int | None = None
    outputs: str | None = None


def minilm(chosen: argparse.Namespace) -> Case:
    """Embeddings of tokens: compiled on descriptions of software."""
    count, kinds = chosen.inputs, ("descriptions", "code", "licences", "random")
    tried = {kind: sources.rows(kind, "full", count, skip=CALIBRATION) for kind in kinds}
    tried["short code"] = sources.rows("code", "short", count, skip=CALIBRATION)
    data = sources.rows("descriptions", "full", CALIBRATION)
    model, outputs = sources.texts.model_directory(), "last_hidden_state"
    return Case(model, data, tried, sources.TOKENS, outputs)


def digits(chosen: argparse.Namespace) -> Case:
    """Classes of images: compiled on the training images; test images, moved and faint ones."""
    folder = EXAMPLES / "digits_vit"
    with np.load(folder / "test.npz") as file:
        images = file["pixel_values"][: chosen.inputs]
    moved = np.zeros_like(images)
    moved[..., 1:] = images[..., :-1]
    noise = np.random.default_rng(0).normal(scale=0.05, size=images.shape)
    faint = np.clip(0.7 * images + noise, 0, 1).astype(images.dtype)
    tried = {"test images": images, "moved by a pixel": moved, "faint": faint}
    data = folder / "calibration.npz"
    return Case(folder / "model", data, {k: {"pixel_values": v} for k, v in tried.items()})


def tiny_llama(chosen: argparse.Namespace) -> Case:
    """Next tokens: compiled on held-out texts of its training's kind."""
    texts, skip = corpus.split()[1], CALIBRATION
    tried = {
        "held-out texts": texts[skip : skip + chosen.inputs],
        "code": sources.rows("code", "full", chosen.inputs),
        "licences": sources.rows("licences", "mixed", chosen.inputs),
    }
    return Case(corpus.MODEL, texts[:skip], tried, length=64)


def reactions(chosen: argparse.Namespace) -> Case:
    """Classes of texts: compiled on reactions; others, these with their molecules in another order,
    and read backwards.
    """
    folder = chosen.reactions
    rows = (folder / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = [row.split("\t")[1] for row in rows][: chosen.inputs]
    sides = [text.split(">>") for text in texts]
    order = [[".".join(side.split(".")[::-1]) for side in pair] for pair in sides]
    tried = {
        "test reactions": texts,
        "in another order": [">>".join(pair) for pair in order],
        "backwards": [">>".join(pair[::-1]) for pair in sides],
    }
    return Case(folder / "model", folder / "calibration.tsv", tried, length=128)


CASES: dict[str, Callable[[argparse.Namespace], Case]] = {
    case.__name__: case for case in (minilm, digits, tiny_llama, reactions)
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("models", nargs="*", help=f"{', '.join(CASES)} [default: the first three]")
    named("--inputs", type=int, default=200, help="of each source")
    named("--points", type=int, default=0, help="further points of each front")
    named("--reactions", type=Path, help="the folder that examples/reactions/prepare.py wrote")
    named("--programs", type=Path, default=Path("build/safe"), help="where programs are kept")
    named("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.models) - set(CASES))
    if unknown or ("reactions" in chosen.models and chosen.reactions is None):
        parser.error(f"no such model: {unknown}" if unknown else "reactions needs --reactions")
    results = []
    for name in chosen.models or list(CASES)[:3]:
        case = CASES[name](chosen)
        for bundle in programs(case, chosen.programs / name, chosen.points):
            results.append(measured(name, case, bundle))
            if not chosen.json:
                show(results[-1])
    if chosen.json:
        print_json(results)
    faults = [fault for one in results for fault in one["faults"]]
    for fault in faults:
        print(fault, file=sys.stderr)
    raise SystemExit(1 if faults else 0)


def programs(case: Case, place: Path, points: int) -> Iterator[Bundle]:
    """The program of a case, and some of a front; those that are there are not made again."""
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.fronts import load_front, save_front
    from atlasc.compilation.options import CompileOptions, SearchOptions
    from atlasc.compilation.prepare import prepare
    from atlasc.compilation.search import search

    def program(folder: Path, **limits: Any) -> Bundle:
        if not folder.exists():
            options = CompileOptions(
                sequence_length=case.length, target="sim", outputs=case.outputs, **limits
            )
            compile_model(str(case.model), case.data, folder, options, progress)
        return load_bundle(folder)

    place.mkdir(parents=True, exist_ok=True)
    yield program(place / "default")
    if not points:
        return
    if not (place / "front").exists():
        searched = SearchOptions(sequence_length=case.length, outputs=case.outputs)
        prepared = prepare(str(case.model), case.data, searched, progress)
        save_front(
            place / "front", search(prepared, searched, progress), prepared.calibration, None
        )
    front = load_front(place / "front").front
    trusted = [point for point in front.points if point.trusted(front.measure)]
    for at in np.unique(np.linspace(0, len(trusted) - 1, points).round().astype(int)):
        error = trusted[at].error
        yield program(place / f"error {error:.3g}", front=place / "front", max_error=error)


def measured(name: str, case: Case, bundle: Bundle) -> dict[str, Any]:
    """Figures of a program on all sources, and what is wrong with them."""
    promise = Promise.of(bundle.poly)
    assert promise is not None
    noisy, model, rows = NoisyProgram(bundle), HuggingFace(case.model), []
    for source, data in case.tried.items():
        inputs = bundle.load_inputs(data)
        with progress(f"{name}: {source}", len(inputs)) as step:
            found: list[Judged] = []
            for _, part in batches(inputs.arrays, CHUNK):
                found += judged(bundle, promise, noisy, model, part)
                step(rows_of(part))
        rows.append({"source": source, **summary(found, promise)})
    label = f"{name}, {bundle.folder.name}"
    faults = [
        f"{label}, {row['source']}: {row['agree']:.2%} of the safe inputs agree, {row['beyond']} "
        f"err by more than stated"
        for row in rows
        if row["beyond"] or (row["agree"] is not None and row["agree"] < LEAST)
    ]
    settings, costs = bundle.manifest.settings, bundle.manifest.costs
    figures = {"depth": costs["depth"], "levels": costs["levels"], "error": settings["error"]}
    return {"program": label, **figures, "promise": str(promise), "rows": rows, "faults": faults}


@dataclass(frozen=True)
class Judged:
    """One input: the verdict on it, how far the answer of an encrypted run agrees with the model's
    (from 0 to 1), and by how much it errs.
    """

    kind: str
    agreement: float
    error: float


def judged(
    bundle: Bundle,
    promise: Promise,
    noisy: NoisyProgram,
    model: HuggingFace,
    arrays: Mapping[str, np.ndarray],
) -> list[Judged]:
    """What the program does on raw inputs, and what it says of them."""
    kinds = [one.kind for one in verdicts(bundle.client, bundle.poly, arrays)]
    answers = noisy.run_with_errors(noisy.prepare(arrays))
    (output,) = answers
    beside = compared(promise, bundle.poly, arrays, answers, {output: model(arrays)})
    agreement = beside.agreement(replace(promise, noise=0.0))  # the answers have it
    return [Judged(*each) for each in zip(kinds, agreement, beside.errors, strict=True)]


def summary(inputs: Sequence[Judged], promise: Promise) -> dict[str, Any]:
    """Figures of inputs of one source; None where no input is safe."""
    safe = [one for one in inputs if one.kind == "safe"]
    agree = sum(one.agreement for one in safe)
    return {
        "inputs": len(inputs),
        "safe": len(safe),
        **{kind: sum(one.kind == kind for one in inputs) for kind in ("undecided", "unsafe")},
        "agree": agree / len(safe) if safe else None,
        "interval": wilson(agree, len(safe)) if safe else None,
        "largest error": max((one.error for one in safe), default=None),
        "stated": promise.error,
        "beyond": sum(not one.error <= promise.error for one in safe),
    }


def show(result: Mapping[str, Any]) -> None:
    """Print the table of a program."""

    def text(row: Mapping[str, Any], column: str) -> Any:
        value = row[column]
        if column == "agree" and value is not None:
            return f"{value:.2%}"
        return " to ".join(f"{end:.2%}" for end in value) if isinstance(value, tuple) else value

    print_table(
        COLUMNS,
        [[text(row, column) for column in COLUMNS] for row in result["rows"]],
        title=f"{result['program']}: depth {result['depth']}, {result['levels']} levels",
    )


if __name__ == "__main__":
    main()
