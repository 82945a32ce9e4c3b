"""``atlasc run``: all four roles in one process, for a try-out."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli.admitting import UncheckedOption, admit
from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress
from atlasc.cli.selection import (
    CountOption,
    IndexOption,
    TargetOption,
    judge_ranges,
    select,
    try_in_the_clear,
)
from atlasc.cli.showing import end_with, outputs_record
from atlasc.cli.timing_table import show_timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from atlasc.bundle.folder import Bundle
    from atlasc.loading.inputs import Inputs
    from atlasc.run.built import BuiltProgram
    from atlasc.run.session import RunResult


def run(
    bundle: Annotated[Path, typer.Argument(help="Folder that compile wrote.")],
    data: Annotated[Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, images.")],
    index: IndexOption = "",
    count: CountOption = None,
    target: TargetOption = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse all inputs if one leaves a calibrated range.")
    ] = False,
    unchecked: UncheckedOption = False,
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
    as_json: JsonFlag = False,
) -> None:
    """Answer inputs on ciphertexts and compare with the cleartext polynomials.

    Makes keys, encrypts, executes and decrypts in this one process. In earnest the roles are apart:
    see keygen, encrypt, execute and decrypt. The errors are the differences from the program's
    polynomials evaluated in the clear. On ciphertexts, the seconds of each kind of op are shown
    beside the predicted ones; with -o, those of every op go to FILE.timing.json.

    A bundle for phantom runs by the Python module of its built project.

    Inputs that are not finite, or far larger than any that calibration saw, are left out. Exit code
    3 says that an answer is none: it is far outside what calibration saw of the outputs.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.client.answers import Answers, judge
    from atlasc.files import require_array_file, save_arrays, write_text
    from atlasc.run.timing import timing_place
    from atlasc.targets import find_target

    if output is not None:
        require_array_file(output)
    loaded = load_bundle(bundle)
    built = _built(loaded, project, target)
    chosen = target or loaded.target
    if built is None:
        find_target(chosen).check()
    inputs = admit(loaded, select(loaded.load_inputs(data), index, count), strict, unchecked)
    simulation = try_in_the_clear(loaded, inputs)
    judge_ranges(simulation.verdicts(inputs.names), strict)
    if built is not None:
        with progress(f"running on {built.engine}, in C++"):
            answer = built.run(loaded, inputs.arrays, simulation.outputs)
    else:
        answer = _run(loaded, inputs, chosen, simulation.outputs, unchecked)
    # The C++ client gives no slots: of its answers only the elements can be looked at.
    judged = judge(loaded.client.interface, answer.outputs, None)
    refused = dict(sorted((judged.refused | answer.refused).items()))
    answer = dataclasses.replace(answer, refused=refused)
    shown = Answers(answer.outputs, refused).shown(unchecked)
    if output is not None:
        save_arrays(output, shown)
        if answer.timing is not None:
            write_text(timing_place(output), answer.timing.text(loaded))
    if as_json:
        record = _record(answer, inputs, simulation.excesses)
        hidden = {} if unchecked else refused
        record |= {"outputs": outputs_record(shown, hidden), "refused": list(refused)}
        print_json(record)
    else:
        _show(answer, shown, inputs)
    end_with(refused, inputs.names, unchecked)


def _built(bundle: Bundle, project: Path | None, target: str) -> BuiltProgram | None:
    """The Python module to run by: of the project that was named, or of the bundle's own."""
    from atlasc.compilation.stages import PROJECT
    from atlasc.ir.errors import AtlasError
    from atlasc.run.built import BuiltProgram, module_place

    if project is not None and target:
        raise AtlasError(
            "--project and --target exclude each other",
            why="the engine of a project is the one that it was built with",
            remedy="leave one of them out",
        )
    own = bundle.folder / PROJECT
    if project is None and not target and module_place(own) is not None:
        project = own
    return None if project is None else BuiltProgram.load(project, bundle)


def _run(
    loaded: Bundle,
    inputs: Inputs,
    chosen: str,
    expected: Mapping[str, np.ndarray],
    unchecked: bool,
) -> RunResult:
    """On a backend of Python, with keys of its own."""
    from atlasc.run import session
    from atlasc.targets import find_target

    started = time.perf_counter()
    with progress("generating keys") as step:
        parameters = loaded.parameters
        engine = find_target(chosen).make_engine(loaded.program, parameters, step.report)
    keys = time.perf_counter() - started
    with progress(f"running on {chosen}", total=100) as step:
        answer = session.run(
            loaded,
            inputs.arrays,
            chosen,
            progress=step.report,
            engine=engine,
            expected=expected,
            unchecked=unchecked,
        )
    answer.seconds["keys"] += keys
    return answer


def _record(answer: RunResult, inputs: Inputs, excesses: list[Any]) -> dict[str, Any]:
    return {
        "outputs": answer.outputs,
        "max_error": answer.max_error,
        "mean_error": answer.mean_error,
        "seconds": sum(answer.seconds.values()),
        "target": answer.target,
        "phases": answer.seconds,
        "inputs": inputs.names,
        "labels": inputs.labels,
        "out_of_range": [excess.to_dict() for excess in excesses],
        "timing": None if answer.timing is None else answer.timing.summary(),
    }


def _show(answer: RunResult, shown: Mapping[str, np.ndarray], inputs: Inputs) -> None:
    import numpy as np

    for name, values in shown.items():
        expected = answer.expected[name]
        errors = abs(values - expected).reshape(len(values), -1).max(axis=1)
        print_table(
            ["input", *_columns(values, inputs), "error"],
            [
                [
                    called,
                    *_cells(row, values, expected, inputs),
                    None if np.isnan(errors[row]) else float(errors[row]),
                ]
                for row, called in enumerate(inputs.names)
            ],
            title=f"{name} {list(values.shape[1:])}",
        )
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in answer.seconds.items())
    print(f"largest error {answer.max_error:.3g}, mean {answer.mean_error:.3g} ({answer.target})")
    print(phases)
    if answer.timing is not None:
        show_timing(answer.timing)


def _columns(values: np.ndarray, inputs: Inputs) -> list[str]:
    label = [] if inputs.labels is None else ["label"]
    if _is_classifier(values):
        return [*label, "answer", "in the clear"]
    return label


def _cells(row: int, values: np.ndarray, expected: np.ndarray, inputs: Inputs) -> list[object]:
    import numpy as np

    label = [] if inputs.labels is None else [int(inputs.labels[row])]
    if _is_classifier(values):
        answer = None if np.isnan(values[row]).any() else int(values[row].argmax())
        return [*label, answer, int(expected[row].argmax())]
    return list(label)


def _is_classifier(values: np.ndarray) -> bool:
    return values.ndim == 2 and values.shape[1] > 1
