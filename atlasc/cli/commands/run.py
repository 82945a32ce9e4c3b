"""``atlasc check-input``: whether inputs are safe; ``atlasc run``: all roles in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from atlasc.cli.output import print_json, print_table, warn
from atlasc.cli.parameters import JSON, STRICT, TARGET, UNCHECKED, BundleFolder, InputOptions
from atlasc.cli.progress import progress
from atlasc.cli.results import answers_record, end_with, show_timing
from atlasc.compilation.declared import option

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from atlasc.api.program import ProgramAnswers
    from atlasc.loading.inputs import Inputs
    from atlasc.run.session import RunResult, Verdict

UNSAFE = 1
"""Exit code where an input leaves a range."""


def check_input(bundle: BundleFolder, inputs: InputOptions, as_json: bool = JSON) -> None:
    """Say in the clear whether inputs may be encrypted and stay in all ranges.

    Evaluates the program's polynomials without encryption, so it needs the whole bundle, and no
    keys. A polynomial explodes outside its range, and nothing in a ciphertext says so. Exit code:
    0 if all inputs are safe, 1 if one is not, 2 if they could not be checked.
    """
    from atlasc.api.admission import require_polynomials, verdicts
    from atlasc.bundle.folder import load_bundle

    loaded = require_polynomials(load_bundle(bundle, "client"))
    found = verdicts(loaded, inputs.load(loaded), progress)
    safe = all(verdict.safe for verdict in found)
    if as_json:
        print_json({"safe": safe, "inputs": [verdict.to_dict() for verdict in found]})
    else:
        _show_verdicts(found)
    if not safe:
        raise typer.Exit(UNSAFE)


def _show_verdicts(verdicts: list[Verdict]) -> None:
    from atlasc.api.admission import UNSAFE_REMEDY

    rows: list[tuple[object, ...]] = []
    for verdict in verdicts:
        first = verdict.first
        if first is None:
            rows.append((verdict.input, verdict.fault or "safe", *[None] * 6))
            continue
        rows.append(
            (
                verdict.input, verdict.fault or "unsafe", first.op, first.location, first.reached,
                f"{first.low:.4g} … {first.high:.4g}", f"{first.share:.2%}",
                len(verdict.excesses) - 1,
            )
        )  # fmt: skip
    print_table(
        (
            "input", "", "first left: op", "module", "reaches", "range", "beyond, of its width",
            "polynomials after it",
        ),
        rows,
    )  # fmt: skip
    unsafe = sum(not verdict.safe for verdict in verdicts)
    if unsafe:
        print(f"{unsafe} of {len(verdicts)} inputs are unsafe; {UNSAFE_REMEDY}")
    else:
        print(f"{len(verdicts)} inputs, all safe")


def run(
    bundle: BundleFolder,
    inputs: InputOptions,
    target: str = TARGET,
    strict: bool = STRICT,
    unchecked: bool = UNCHECKED,
    output: Path | None = option("Write the answers to this .npz file.", "-o"),
    project: Path | None = option(
        "Run on the engine of this built project, by its Python module (emit --build "
        "--python) [default: the bundle's own, where it was built].",
    ),
    as_json: bool = JSON,
) -> None:
    """Answer inputs on ciphertexts and compare with the cleartext polynomials.

    Makes keys, encrypts, executes and decrypts in this one process. In a real deployment the roles
    are apart: see keygen, encrypt, execute and decrypt. The errors are the differences from the
    program's polynomials evaluated in the clear. On ciphertexts, the seconds of each kind of op are
    shown beside the predicted ones; with -o, those of every op go to FILE.timing.json.

    A bundle for phantom runs by the Python module of its built project.

    Inputs that are not finite, or far larger than any that calibration saw, are left out. Exit code
    3 says that an input has no answer: it is far outside what calibration saw of the outputs.
    """
    from atlasc.api.program import run_inputs
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
    answer, asked = result.answer, result.inputs.take(result.rows)
    shown = answer.shown(unchecked)
    if output is not None:
        save_arrays(output, shown)
        if answer.timing is not None:
            write_text(timing_place(output), answer.timing.text(loaded))
    if as_json:
        print_json(_record(result, asked) | answers_record(answer, unchecked))
    else:
        _show(answer, shown, asked)
    end_with(answer.refused, asked.names, unchecked)


def _record(result: ProgramAnswers, inputs: Inputs) -> dict[str, Any]:
    answer = result.answer
    return {
        "max_error": answer.max_error,
        "mean_error": answer.mean_error,
        "seconds": sum(answer.seconds.values()),
        "target": answer.target,
        "phases": answer.seconds,
        "inputs": inputs.names,
        "labels": inputs.labels,
        "out_of_range": [one.to_dict() for one in result.excesses],
        "timing": None if answer.timing is None else answer.timing.summary(),
    }


def _show(answer: RunResult, shown: Mapping[str, np.ndarray], inputs: Inputs) -> None:
    import numpy as np

    for name, values in shown.items():
        expected = answer.expected[name]
        errors = abs(values - expected).reshape(len(values), -1).max(axis=1)
        columns: dict[str, Any] = {"input": inputs.names}
        if inputs.labels is not None:
            columns["label"] = inputs.labels.tolist()
        if values.ndim == 2 and values.shape[1] > 1:  # scores of classes
            columns["answer"] = [None if np.isnan(v).any() else int(v.argmax()) for v in values]
            columns["in the clear"] = [int(v.argmax()) for v in expected]
        columns["error"] = [None if np.isnan(error) else float(error) for error in errors]
        rows = list(zip(*columns.values(), strict=True))
        print_table([*columns], rows, title=f"{name} {list(values.shape[1:])}")
    print(f"largest error {answer.max_error:.3g}, mean {answer.mean_error:.3g} ({answer.target})")
    print(", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in answer.seconds.items()))
    if answer.timing is not None:
        show_timing(answer.timing)
