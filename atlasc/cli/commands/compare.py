"""``atlasc compare``: the first thing anyone needs when an encrypted result is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress
from atlasc.cli.selection import IndexOption, TargetOption, select

if TYPE_CHECKING:
    from atlasc.compare import Comparison, OpDifference

DIFFERENT = 1
"""Exit code where the backends part, as that of diff."""


def compare(
    bundle: Annotated[Path, typer.Argument(help="Folder that compile wrote.")],
    data: Annotated[Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, images.")],
    index: IndexOption = "",
    against: Annotated[str, typer.Option("--against", help="The backend to believe.")] = "sim",
    target: TargetOption = "",
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", min=0.0, help="Largest difference, for values up to 1."),
    ] = None,
    isolate: Annotated[
        bool,
        typer.Option("--isolate", help="Show what each op adds alone: equal inputs for each."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run two backends op by op and show where they part.

    The target sim adds the errors of CKKS, from a noise model; the backend to believe is exact
    where it is sim. At most one batch is compared, by default the first. Exit code 1 says that the
    two differ by more than the tolerance.
    """
    from atlasc.bundle import load_bundle
    from atlasc.compare import compare as compare_engines
    from atlasc.session import Pace, make_engine, parameters_of

    loaded = load_bundle(bundle)
    chosen = target or loaded.target
    inputs = select(loaded.load_inputs(data), index, None)
    if not index:
        inputs = inputs.take(range(min(loaded.client.batch, len(inputs))))
    query = loaded.client.query(inputs.arrays)
    parameters = parameters_of(loaded.manifest)
    with progress("generating keys") as step:
        reference = make_engine(against, loaded.program, parameters, step.report)
        examined = make_engine(chosen, loaded.program, parameters, step.report, noise=True)
    with progress(f"comparing {chosen} with {against}", total=100) as step:
        result = compare_engines(
            loaded.program,
            query,
            reference,
            examined,
            tolerance=tolerance,
            isolate=isolate,
            before=Pace.of(loaded, chosen, 1, step.report),
        )
    if as_json:
        print_json(_record(result, against, chosen, isolate))
    else:
        _show(result, against, chosen, isolate)
    if result.refused is not None:
        raise result.refused
    if result.first is not None:
        raise typer.Exit(DIFFERENT)


def _record(result: Comparison, against: str, target: str, isolate: bool) -> dict[str, Any]:
    return {
        "against": against,
        "target": target,
        "isolated": isolate,
        "ops": [_entry(op) for op in result.ops],
        "first": None if result.first is None else _entry(result.first),
        "max_difference": None if result.worst is None else result.worst.difference,
        "refused": None if result.refused is None else result.refused.what,
    }


def _entry(op: OpDifference) -> dict[str, Any]:
    return {**dataclasses.asdict(op), "parts": op.parts}


def _show(result: Comparison, against: str, target: str, isolate: bool) -> None:
    alone = ", each op alone" if isolate else ""
    print_table(
        ["op", "result", "module", "level", "difference", "tolerance", ""],
        [
            [
                op.op.removeprefix("ckks."),
                f"%{op.value}",
                op.location,
                op.level,
                op.difference,
                op.tolerance,
                _remark(op, op is result.first),
            ]
            for op in result.ops
        ],
        title=f"{target} against {against}{alone}",
    )
    first, worst = result.first, result.worst
    if first is not None:
        print(f"they part at {first.op} %{first.value} in {first.location or 'the program'}")
    elif worst is not None and result.refused is None:
        print(f"no difference above its tolerance; the largest is {worst.difference:.3g}")


def _remark(op: OpDifference, first: bool) -> str:
    if op.level != op.target_level:
        return f"level {op.target_level} in the target"
    return "<- first" if first else ("outside" if op.parts else "")
