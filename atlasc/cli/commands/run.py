"""``atlasc run``: all four roles in one process, for a try-out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress
from atlasc.cli.selection import CountOption, IndexOption, TargetOption, judge_ranges, select

if TYPE_CHECKING:
    import numpy as np

    from atlasc.loading.inputs import Inputs
    from atlasc.session import Answer


def run(
    bundle: Annotated[Path, typer.Argument(help="Folder that compile wrote.")],
    data: Annotated[Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, images.")],
    index: IndexOption = "",
    count: CountOption = None,
    target: TargetOption = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse inputs that leave a calibrated range.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the answers to this .npz file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer inputs on ciphertexts and compare with the cleartext polynomials.

    Makes keys, encrypts, executes and decrypts in this one process. In earnest the roles are apart:
    see keygen, encrypt, execute and decrypt. The errors are the differences from the program's
    polynomials evaluated in the clear.
    """
    from atlasc import session
    from atlasc.backends import get_backend
    from atlasc.bundle import load_bundle, require_array_file, save_arrays
    from atlasc.ranges import simulate

    if output is not None:
        require_array_file(output)
    loaded = load_bundle(bundle)
    chosen = target or loaded.target
    get_backend(chosen).check()
    inputs = select(loaded.load_inputs(data), index, count)
    with progress("polynomials in the clear", total=len(inputs)) as step:
        simulation = simulate(
            loaded.client, loaded.poly, inputs.arrays, inputs.names, progress=step.report
        )
    judge_ranges(simulation.excesses, strict)
    started = time.perf_counter()
    with progress("generating keys") as step:
        parameters = session.parameters_of(loaded.manifest)
        engine = session.make_engine(chosen, loaded.program, parameters, step.report)
    keys = time.perf_counter() - started
    with progress(f"running on {chosen}", total=100) as step:
        answer = session.run(
            loaded,
            inputs.arrays,
            chosen,
            progress=step.report,
            engine=engine,
            expected=simulation.outputs,
        )
    answer.seconds["keys"] += keys
    if output is not None:
        save_arrays(output, answer.outputs)
    if as_json:
        print_json(_record(answer, inputs, simulation.excesses))
    else:
        _show(answer, inputs)


def _record(answer: Answer, inputs: Inputs, excesses: list[Any]) -> dict[str, Any]:
    return {
        "outputs": answer.outputs,
        "max_error": answer.max_error,
        "mean_error": answer.mean_error,
        "seconds": sum(answer.seconds.values()),
        "target": answer.target,
        "phases": answer.seconds,
        "inputs": inputs.names,
        "labels": inputs.labels,
        "out_of_range": [
            {
                "input": excess.input,
                "op": excess.op,
                "location": excess.location,
                "reached": excess.reached,
                "range": [excess.low, excess.high],
                "share": excess.share,
            }
            for excess in excesses
        ],
    }


def _show(answer: Answer, inputs: Inputs) -> None:
    for name, values in answer.outputs.items():
        expected = answer.expected[name]
        errors = abs(values - expected).reshape(len(values), -1).max(axis=1)
        print_table(
            ["input", *_columns(values, inputs), "error"],
            [
                [called, *_cells(row, values, expected, inputs), float(errors[row])]
                for row, called in enumerate(inputs.names)
            ],
            title=f"{name} {list(values.shape[1:])}",
        )
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in answer.seconds.items())
    print(f"largest error {answer.max_error:.3g}, mean {answer.mean_error:.3g} ({answer.target})")
    print(phases)


def _columns(values: np.ndarray, inputs: Inputs) -> list[str]:
    label = [] if inputs.labels is None else ["label"]
    if _is_classifier(values):
        return [*label, "answer", "in the clear"]
    return label


def _cells(row: int, values: np.ndarray, expected: np.ndarray, inputs: Inputs) -> list[object]:
    label = [] if inputs.labels is None else [int(inputs.labels[row])]
    if _is_classifier(values):
        return [*label, int(values[row].argmax()), int(expected[row].argmax())]
    return list(label)


def _is_classifier(values: np.ndarray) -> bool:
    return values.ndim == 2 and values.shape[1] > 1
