"""``atlasc compare``: where an encrypted result goes wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_table
from atlasc.cli.parameters import JSON, TARGET, BundleFolder, IndexedInputs
from atlasc.compilation.declared import option, switch

if TYPE_CHECKING:
    from atlasc.compare.checkpoint import OpError
    from atlasc.compare.compare import Comparison

DIFFERENT = 1
"""Exit code if the targets differ, as for diff."""


def compare(
    bundle: BundleFolder,
    inputs: IndexedInputs,
    against: str = option("The target that serves as reference.", default="sim"),
    target: str = TARGET,
    tolerance: float | None = option(
        "Also bound the difference of the whole program up to each op.",
        minimum=0.0,
    ),
    keep_going: bool = switch("Do not stop at the first op that is wrong."),
    checkpoint: Path | None = option(
        "File (.npz) for the state, so that the same command can continue."
    ),
    as_json: bool = JSON,
) -> None:
    """Run two targets op by op and find the first op that goes wrong.

    The error of an op is what this op alone adds: its result on its own operands, compared with
    the simulator's result on the same operands. The noise model of the program's parameters gives a
    bound on this error: four times the greatest error of three simulations, and for the root mean
    square three times theirs. The difference is that of the whole program up to the op. The target
    sim adds the errors of the noise model, unless it is the reference. At most one batch is
    compared, by default the first. Exit code 1 says that an op is wrong.
    """
    from atlasc.bundle.folder import load_bundle
    from atlasc.compare.checkpoint import Checkpoint, comparison_identity
    from atlasc.compare.compare import compare as compare_engines
    from atlasc.files import require_file_place
    from atlasc.run.timing import Course, Pace
    from atlasc.targets import find_target

    if checkpoint is not None:
        require_file_place(checkpoint, ".npz")
    loaded = load_bundle(bundle)
    chosen = target or loaded.target
    compared = inputs.load(loaded)
    if not inputs.index:
        compared = compared.take(range(min(loaded.client.batch, len(compared))))
    query = loaded.client.query(compared.arrays, unchecked=True)
    state = None
    if checkpoint is not None:
        identity = comparison_identity(loaded.identity, query, chosen, against)
        state = Checkpoint(checkpoint, identity)
    start = 0 if state is None else state.position
    parameters, program = loaded.parameters, loaded.program
    with progress("generating keys") as step:
        reference = find_target(against).make_engine(program, parameters, step.report)
        examined = find_target(chosen).make_engine(program, parameters, step.report, noise=True)
    resume = "" if state is None else f"the same command continues from {checkpoint}"
    with progress(f"comparing {chosen} with {against}", total=100, resume=resume) as step:
        result = compare_engines(
            program,
            query,
            reference,
            examined,
            parameters.noise_model(),
            tolerance=tolerance,
            keep_going=keep_going,
            before=Pace(Course.of(program, parameters), find_target(chosen), 1, step.report, start),
            checkpoint=state,
        )
    if as_json:
        print_json(_record(result, against, chosen))
    else:
        _show(result, against, chosen)
    if result.refused is not None:
        raise result.refused
    if result.first is not None:
        raise typer.Exit(DIFFERENT)


def _record(result: Comparison, against: str, target: str) -> dict[str, Any]:
    return {
        "against": against,
        "target": target,
        "ops": [_entry(op) for op in result.ops],
        "first": None if result.first is None else _entry(result.first),
        "max_difference": None if result.worst is None else result.worst.difference,
        "refused": None if result.refused is None else result.refused.what,
    }


def _entry(op: OpError) -> dict[str, Any]:
    return {**dataclasses.asdict(op), "parts": op.parts}


def _show(result: Comparison, against: str, target: str) -> None:
    print_table(
        ["op", "result", "module", "level", "error", "bound", "difference", ""],
        [
            [
                op.op.removeprefix("ckks."),
                f"%{op.value}",
                op.location,
                op.level,
                op.error,
                op.bound,
                op.difference,
                _remark(op, op is result.first),
            ]
            for op in result.ops
        ],
        title=f"{target} against {against}",
    )
    first, worst = result.first, result.worst
    if first is not None:
        print(
            f"the targets first differ at {first.op} %{first.value} in "
            f"{first.location or 'the program'}, "
            f"level {first.level}: error {first.error:.3g}, bound {first.bound:.3g}, difference so "
            f"far {first.difference:.3g}"
        )
    elif worst is not None and result.refused is None:
        print(f"every op stays within its bound; the largest difference is {worst.difference:.3g}")


def _remark(op: OpError, first: bool) -> str:
    if op.level != op.target_level:
        return f"level {op.target_level} in the target"
    return "<- first" if first else ("outside" if op.parts else "")
