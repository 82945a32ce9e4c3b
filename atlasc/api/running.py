"""Runs of a program in one process, as ``Program.run`` and ``atlasc run`` do them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from atlasc.api.admission import admit
from atlasc.api.answers import ProgramAnswers
from atlasc.bundle.folder import Bundle
from atlasc.compilation.compile import PROJECT
from atlasc.ir.errors import AtlasError
from atlasc.loading.inputs import Inputs
from atlasc.loading.texts.spans import answered
from atlasc.progress import Note, Steps, silent
from atlasc.run import session
from atlasc.run.built import BuiltProgram, module_place
from atlasc.run.session import RunResult
from atlasc.simulation.agreement import UNKNOWN, Promise, compared
from atlasc.targets import find_target


def run_inputs(
    bundle: Bundle,
    inputs: Inputs,
    target: str,
    *,
    project: Path | None = None,
    strict: bool = False,
    unchecked: bool = False,
    steps: Steps = silent,
    note: Note,
) -> ProgramAnswers:
    """Run a program as :meth:`Program.run`, with progress in steps and warnings as they occur.

    Raises:
        AtlasError: as :meth:`Program.run`.
    """
    bundle.require_no_state()
    built = _built(bundle, project, target)
    target = target or bundle.target
    if built is None:
        find_target(target).check()
    admitted = admit(bundle, inputs, note, strict=strict, unchecked=unchecked, steps=steps)
    arrays = admitted.inputs.arrays
    with steps("polynomials in the clear", total=len(admitted.inputs)) as step:
        expected, model = session.simulate_both(bundle.client, bundle.poly, arrays, step.report)
    if built is not None:
        with steps(f"running on {built.module.engine}, in C++"):
            answer = built.run(arrays, expected, unchecked)
    else:
        answer = session.run(
            bundle, arrays, target, steps=steps, expected=expected, unchecked=unchecked
        )
    answer = replace(answer, model=model)
    refused = dict(admitted.left_out) | {
        admitted.rows[row]: f"{share:.1%} of its slots are far outside those seen in calibration"
        for row, share in answer.refused.items()
    }
    answers = ProgramAnswers(
        inputs, admitted.rows, answer, dict(sorted(refused.items())), (), unchecked,
        *_beside_model(bundle, arrays, answer),
    )  # fmt: skip
    return replace(answers, spans=answered(bundle.model, inputs, answers.outputs))


def _beside_model(
    bundle: Bundle, arrays: Mapping[str, np.ndarray], answer: RunResult
) -> tuple[tuple[float, ...] | None, dict[str, np.ndarray] | None]:
    """How far each answer agrees with the model's, from 0 to 1, and output name -> error of each
    answer; None for what is not known.
    """
    if answer.model is None:
        return None, None
    promise = Promise.of(bundle.poly)
    judged = promise or UNKNOWN
    errors = {
        name: compared(judged, bundle.poly, arrays, {name: ours}, {name: answer.model[name]}).errors
        for name, ours in answer.outputs.items()
    }
    if promise is None:
        return None, errors
    beside = compared(promise, bundle.poly, arrays, answer.outputs, answer.model)
    # These answers already contain the errors of encryption.
    found = beside.agreement(replace(promise, noise=0.0))
    found[list(answer.refused)] = 0.0
    return tuple(found.tolist()), errors


def _built(bundle: Bundle, project: Path | None, target: str) -> BuiltProgram | None:
    """The Python module that runs the program: of the named project, or of the bundle's own."""
    if project is not None and target:
        raise AtlasError(
            "--project and --target exclude each other",
            why="a project runs on the engine that it was built with",
            remedy="leave one of them out",
        )
    own = bundle.folder / PROJECT
    if project is None and not target and module_place(own) is not None:
        project = own
    return None if project is None else BuiltProgram(project, bundle)
