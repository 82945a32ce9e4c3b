"""``atlasc run``: all four roles in one process, for a try-out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli.answers import end_with, outputs_record
from atlasc.cli.costs import show_timing
from atlasc.cli.errors import warn
from atlasc.cli.output import print_json, print_table
from atlasc.cli.parameters import (
    BundleFolder,
    Count,
    Index,
    InputFile,
    Json,
    OtherTarget,
    Strict,
    Unchecked,
)
from atlasc.cli.progress import progress
from atlasc.cli.selection import selected

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from atlasc.api.program import ProgramAnswers
    from atlasc.loading.inputs import Inputs
    from atlasc.run.session import RunResult


def run(
    bundle: BundleFolder,
    data: InputFile,
    index: Index = "",
    count: Count = None,
    target: OtherTarget = "",
    strict: Strict = False,
    unchecked: Unchecked = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the answers to this .npz file.")
    ] = None,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            help="Run on the engine of this built project, by its Python module (emit --build "
            "--python) [default: the bundle's own, where it was built].",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
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
    from atlasc.files import require_array_file, save_arrays, write_text
    from atlasc.run.timing import timing_place

    if output is not None:
        require_array_file(output)
    loaded = load_bundle(bundle)
    result = run_inputs(
        loaded, selected(loaded, data, index, count), target, project=project, strict=strict,
        unchecked=unchecked, steps=progress, note=warn,
    )  # fmt: skip
    answer, inputs = result.answer, result.inputs.take(result.rows)
    shown = answer.shown(unchecked)
    if output is not None:
        save_arrays(output, shown)
        if answer.timing is not None:
            write_text(timing_place(output), answer.timing.text(loaded))
    if as_json:
        hidden = {} if unchecked else answer.refused
        outputs = outputs_record(shown, hidden)
        print_json({**_record(result, inputs), "outputs": outputs, "refused": [*answer.refused]})
    else:
        _show(answer, shown, inputs)
    end_with(answer.refused, inputs.names, unchecked)


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
