"""``atlasc evaluate``: accuracy and agreement of a program on labelled inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_table, say, warn
from atlasc.cli.parameters import JSON, TARGET, BundleFolder, InputOptions
from atlasc.compilation.declared import option

if TYPE_CHECKING:
    from atlasc.evaluation.evaluate import Evaluation
    from atlasc.simulation.confusion import Confusion

NAMED = 10
"""How many unsafe inputs are named; ``--json`` has all."""


def evaluate(
    bundle: BundleFolder,
    inputs: InputOptions,
    encrypted: int = option(
        "Also answer this many inputs, chosen at random, on ciphertexts.", default=0, minimum=0
    ),
    simulated: int = option(
        "Also answer this many inputs on the simulator, with the errors of CKKS.",
        default=0,
        minimum=0,
    ),
    target: str = TARGET,
    seed: int = option("Seed for the choice of inputs and for the simulated errors.", default=0),
    output: Path | None = option("Write a page with the figures, an .html file.", "-o"),
    as_json: bool = JSON,
) -> None:
    """Measure how accurate a program is on labelled inputs, beside its model.

    Labels are classes of the model, by number or by name, or values if the model outputs one
    number. Each row of the table adds one source of error: the model in the clear, its polynomials,
    the errors of encryption and, with --encrypted N, ciphertexts. Without labels the command
    measures only how often the program agrees with the model.
    """
    from atlasc.api.program import evaluate_inputs
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import require_file_place, write_text

    if output is not None:
        require_file_place(output, ".html", new=True)
    loaded = load_bundle(bundle)
    found = evaluate_inputs(
        loaded, inputs.load(loaded), encrypted=encrypted, simulated=simulated, target=target,
        seed=seed, steps=progress, note=warn,
    )  # fmt: skip
    if output is not None:
        from atlasc.evaluation.stages import MEANINGS
        from atlasc.report.pages import evaluation_html

        write_text(output, evaluation_html(found.to_dict(), MEANINGS, found.confusion))
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)


def _show_confusion(found: Confusion) -> None:
    """Accuracy by class and the confusion matrix, or of many classes where they differ."""
    if found.shown:
        print_table(
            ["class", "inputs", "right by the model", "right by the program"],
            [(one.name, one.inputs, one.model, one.program) for one in found.shown],
        )
    if len(found.shown) < len(found.classes):
        say(
            f"{len(found.shown)} of {len(found.classes)} classes are shown: those whose inputs "
            "model and program answer differently; --json has all"
        )
    if found.matrix is None:
        print_table(
            ["label", "taken for", "by the model", "by the program"],
            [(one.label, one.answer, one.model, one.program) for one in found.top],
        )
        say(f"the {len(found.top)} most frequent wrong answers, those that differ first")
    else:
        heads, rows = found.matrix
        print_table(heads, rows, title="labels down, answers across")
        say("a cell counts the program's answers; model | program where they differ")


def _show(found: Evaluation) -> None:
    from atlasc.compilation.oracle.figures import far_words
    from atlasc.evaluation.stages import MEANINGS
    from atlasc.report.pages import share
    from atlasc.simulation.agreement import ERROR

    columns: dict[str, list[object]] = {
        "stage": [one.stage for one in found.figures],
        "inputs": [one.inputs for one in found.figures],
        "accuracy": [share(one.accuracy, one.accuracy_interval) for one in found.figures],
        "Pearson": [share(one.pearson, one.pearson_interval) for one in found.figures],
        "Spearman": [share(one.spearman) for one in found.figures],
        "agreement": [share(one.agreement, one.agreement_interval) for one in found.figures],
        "KL (nats)": [one.divergence for one in found.figures],
        "greatest error": [one.max_error for one in found.figures],
        "mean error": [one.mean_error for one in found.figures],
    }
    known = {title: cells for title, cells in columns.items() if set(cells) != {None}}
    print_table([*known], zip(*known.values(), strict=True), title=found.program)
    for one in found.figures:
        say(f"{one.stage}: {MEANINGS[one.stage]}")
    say(f"error: {ERROR}; in brackets: 95% confidence intervals")
    if found.module is not None:
        say(far_words(found.module))
    if found.confusion is not None:
        _show_confusion(found.confusion)
    say(f"promised: {found.promise}")
    for words, names in (
        ("unsafe", found.unsafe),
        ("undecided", found.undecided),
        ("left out", found.left_out),
    ):
        if names:
            say(f"{len(names)} of {found.inputs} inputs are {words}:")
            for name, why in list(names.items())[:NAMED]:
                say(f"  {name}: {why}")
            if len(names) > NAMED:
                say(f"  and {len(names) - NAMED} more")
    if not found.unsafe and not found.left_out:
        print(f"none of {found.inputs} inputs is unsafe")
    worst: dict[str, list[object]] = {
        "furthest from the model": [one.input for one in found.worst],
        "verdict": [one.verdict for one in found.worst],
        "label": [one.label for one in found.worst],
        "model": [one.model for one in found.worst],
        "program": [one.program for one in found.worst],
        "error": [one.error for one in found.worst],
    }
    shown = {title: cells for title, cells in worst.items() if set(cells) != {None}}
    print_table([*shown], zip(*shown.values(), strict=True))
