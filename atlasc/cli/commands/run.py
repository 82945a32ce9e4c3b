"""``atlasc check-input``: whether inputs are safe; ``atlasc run``: all roles in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_table, say, warn
from atlasc.cli.parameters import JSON, STRICT, TARGET, UNCHECKED, BundleFolder, InputOptions
from atlasc.cli.results import (
    NO_ANSWER,
    end_with,
    outputs_record,
    print_labels,
    print_spans,
    show_timing,
    spans_record,
)
from atlasc.compilation.declared import option

if TYPE_CHECKING:
    from atlasc.api.answers import ProgramAnswers
    from atlasc.client.verdict import Verdict
    from atlasc.simulation.agreement import Promise

UNSAFE = 1
"""Exit code if an input is unsafe."""


def check_input(bundle: BundleFolder, inputs: InputOptions, as_json: bool = JSON) -> None:
    """Check in the clear whether the encrypted answers to inputs will be right.

    The command evaluates the program's polynomials without encryption. It needs the whole bundle
    and no keys. An answer is wrong if a bootstrap gets a value outside its range, or if it is not
    the model's answer: another class, or values that differ by more than the program promises.
    Nothing in a ciphertext shows this. If another class is so close that errors of encryption may
    decide, or the model itself hardly decides, the input is undecided. Exit code: 0 if all inputs
    are safe, 1 if one is not, 2 if they could not be checked.
    """
    from atlasc.api.admission import checked, require_polynomials
    from atlasc.bundle.folder import load_bundle
    from atlasc.simulation.agreement import Promise

    loaded = require_polynomials(load_bundle(bundle, "client"))
    found = checked(loaded, inputs.load(loaded), progress)
    safe = all(verdict.safe for verdict in found)
    if as_json:
        print_json({"safe": safe, "inputs": [verdict.to_dict() for verdict in found]})
    else:
        _show_verdicts(found, Promise.of(loaded.poly), loaded.manifest.settings)
    if not safe:
        raise typer.Exit(UNSAFE)


def _show_verdicts(
    verdicts: list[Verdict], promise: Promise | None, settings: dict[str, Any]
) -> None:
    from atlasc.api.admission import UNSAFE_REMEDY, what_answers

    rows: list[tuple[object, ...]] = []
    for verdict in verdicts:
        first, said = verdict.first, verdict.fault or verdict.kind
        error = None if verdict.promised is None or verdict.fault else verdict.error
        left: tuple[object, ...] = (None,) * 5
        if first is not None:
            left = (
                first.op, first.location, first.reached, f"{first.low:.4g} … {first.high:.4g}",
                f"{first.share:.2%}",
            )  # fmt: skip
        stated = None if error is None else verdict.stated
        rows.append((verdict.input, said, error, stated, *left))
    print_table(
        (
            "input", "", "error", "may err by", "first left: op", "module", "reaches", "range",
            "beyond, of its width",
        ),
        rows,
    )  # fmt: skip
    if promise is not None:
        print(promise)
    if promise is not None and all(verdict.agreement is None for verdict in verdicts):
        print(
            "the distance to the model is not known, because this recipe's polynomials do not name "
            "the functions that they approximate; here safe means that an input stays in all ranges"
        )
    for verdict in verdicts:
        if verdict.disagrees or verdict.undecided:
            say(f"{verdict.input}: {verdict.why}")
    unsafe = sum(verdict.unsafe for verdict in verdicts)
    undecided = sum(verdict.kind == "undecided" for verdict in verdicts)
    if unsafe:
        print(f"{unsafe} of {len(verdicts)} inputs are unsafe; {UNSAFE_REMEDY}")
        print("what would answer them:", *what_answers(settings), sep="\n  ")
    if undecided:
        print(
            f"{undecided} of {len(verdicts)} inputs are undecided: the class may not be the model's"
        )
    if not unsafe and not undecided:
        print(f"{len(verdicts)} inputs, all safe")


def run(
    bundle: BundleFolder,
    inputs: InputOptions,
    target: str = TARGET,
    strict: bool = STRICT,
    unchecked: bool = UNCHECKED,
    output: Path | None = option("Write the answers to this .npz file.", "-o"),
    project: Path | None = option(
        "Built project (emit --build --python) whose engine runs the program, through its Python "
        "module.",
        unset="the project in the bundle, if it was built there",
    ),
    as_json: bool = JSON,
) -> None:
    """Answer inputs on ciphertexts and compare with the cleartext polynomials.

    The command makes keys, encrypts, executes and decrypts in this one process. In a real
    deployment the roles are apart: see keygen, encrypt, execute and decrypt. The errors shown are
    differences from the program's polynomials, evaluated in the clear. On ciphertexts, the measured
    seconds of each kind of op are shown beside the predicted ones; with -o, the seconds of every op
    are written to FILE.timing.json.

    A bundle for phantom runs through the Python module of its built project.

    Inputs whose answers would be wrong are left out; the others are answered. Exit code 3 says that
    an input has no answer.
    """
    from atlasc.api.running import run_inputs
    from atlasc.bundle.folder import load_bundle
    from atlasc.files import require_file_place, save_arrays, write_text
    from atlasc.run.timing import timing_place

    if output is not None:
        require_file_place(output, ".npz", new=True)
    loaded = load_bundle(bundle)
    result = run_inputs(
        loaded, inputs.load(loaded), target, project=project, strict=strict,
        unchecked=unchecked, steps=progress, note=warn,
    )  # fmt: skip
    if output is not None:
        save_arrays(output, result.outputs)
        if result.timing is not None:
            write_text(timing_place(output), result.timing.text(loaded))
    if as_json:
        print_json(_record(result))
    else:
        _show(result, loaded.model.config)
    asked = result.inputs.take(result.rows)
    end_with(result.answer.refused, asked.names, unchecked)
    if len(result.rows) < len(result.inputs):
        raise typer.Exit(NO_ANSWER)


def _record(result: ProgramAnswers) -> dict[str, Any]:
    inputs, answer = result.inputs, result.answer
    return {
        "max_error": answer.max_error,
        "mean_error": answer.mean_error,
        "model_max_error": result.model_max_error,
        "model_mean_error": result.model_mean_error,
        "agreement": result.agreement,
        "seconds": sum(answer.seconds.values()),
        "target": answer.target,
        "phases": answer.seconds,
        "inputs": inputs.names,
        "labels": inputs.labels,
        "outputs": outputs_record(result.outputs, result.unanswered),
        "spans": spans_record(result.spans),
        "refused": {inputs.names[row]: why for row, why in result.refused.items()},
        "timing": None if answer.timing is None else answer.timing.summary(),
    }


def _known(errors: Any) -> list[float | None]:
    return [None if error != error else float(error) for error in errors]


def _show(result: ProgramAnswers, config: Any) -> None:
    import numpy as np

    from atlasc.loading.labels import gives_several, names_of_classes
    from atlasc.simulation.agreement import ERROR

    inputs, answer, errors = result.inputs, result.answer, result.errors
    beside, model = result.model_errors, result.model
    if result.spans is not None:
        print_spans(inputs.names, result.spans)
    for name, values in result.outputs.items():
        several = gives_several(config) and values.ndim == 2
        if several:
            names = names_of_classes(config, values.shape[1])
            print_labels(name, values, answer.functions.get(name), names, inputs.names)
        columns: dict[str, Any] = {"input": inputs.names}
        if inputs.labels is not None:
            columns["label"] = inputs.labels.tolist()
        if values.ndim == 2 and values.shape[1] > 1 and not several:  # scores of classes
            known = {"answer": values, "polynomials": result.expected[name]}
            for title, scores in (known | ({"model": model[name]} if model else {})).items():
                columns[title] = [None if np.isnan(v).any() else int(v.argmax()) for v in scores]
        elif values.ndim == 1:
            columns["answer"] = _known(values)
        columns["from the polynomials"] = _known(errors[name])
        if beside is not None:
            columns["error"] = _known(beside[name])
        rows = list(zip(*columns.values(), strict=True))
        print_table([*columns], rows, title=f"{name} {list(values.shape[1:])}")
    print(
        f"greatest difference of one number from the polynomials {answer.max_error:.3g}, mean "
        f"{answer.mean_error:.3g} ({answer.target})"
    )
    if result.model_max_error is None:
        print("errors beside the model are not known: these polynomials name no functions")
    else:
        say(
            f"greatest error {result.model_max_error:.3g}, mean {result.model_mean_error:.3g}: "
            f"{ERROR}"
        )
    if result.agreement is not None:
        print(f"{result.agreement:.2%} of the answers agree with the model's")
    print(", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in answer.seconds.items()))
    if answer.timing is not None:
        show_timing(answer.timing)
