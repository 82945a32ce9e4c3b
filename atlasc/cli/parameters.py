"""Parameters of commands: groups of options from dataclasses, and what several commands share.

A command takes a group of :mod:`atlasc.compilation.options` as one parameter; :func:`expanded`
makes an option of each of its fields::

    def calibrate(model: Model, data: Data, options: CalibrationOptions) -> None: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from atlasc.compilation.declared import OptionFacts, flag
from atlasc.targets import TARGETS

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="HuggingFace directory or name in the local cache, .pt2 archive or .pt file.",
        show_default=False,
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        help="Inputs: .txt, .jsonl, .npz, an image or a folder of images.",
        show_default=False,
    ),
]
Recipe = Annotated[str, typer.Option("--recipe", help="is, nexus, thor, moai, arion or polaris.")]
ForTarget = Annotated[
    str, typer.Option("--target", help=f"What the program is for: {', '.join(TARGETS)}.")
]
Folder = Annotated[
    Path, typer.Option("--output", "-o", help="New folder to write.", show_default=False)
]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder that compile wrote.")]
InputFile = Annotated[
    Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, an image or a folder of them.")
]
Index = Annotated[str, typer.Option("--index", help="Take these inputs of the file: 0,1,5 or 3-7.")]
Count = Annotated[
    int | None, typer.Option("--count", min=1, help="Take the first inputs of the file.")
]
OtherTarget = Annotated[
    str, typer.Option("--target", help="Another target than the bundle was compiled for.")
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Refuse all inputs if one is unfit or leaves a calibrated range."
    ),
]
Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Take inputs and show answers that are far outside what calibration saw.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """A function with an option for each field of the groups that a command takes.

    Args:
        command: parameters whose annotation is a dataclass are groups.
    """
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        p.name: p.annotation for p in parameters if is_dataclass(p.annotation)
    }
    if not groups:
        return command
    shown: dict[str, inspect.Parameter] = {}
    for parameter in parameters:
        if parameter.name not in groups:
            shown[parameter.name] = parameter
            continue
        hints = get_type_hints(parameter.annotation)
        for one in fields(parameter.annotation):
            shown.setdefault(one.name, _parameter(one, hints[one.name]))

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        made = {
            name: group(**{one.name: _value(one, values.pop(one.name)) for one in fields(group)})
            for name, group in groups.items()
        }
        return command(**values, **made)

    # Those without a default come first, as Python wants it.
    ordered = sorted(shown.values(), key=lambda p: p.default is not inspect.Parameter.empty)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in ordered]
    )
    call.__annotations__ = {p.name: p.annotation for p in ordered}
    return call


def _parameter(one: Field[Any], hint: Any) -> inspect.Parameter:
    facts: OptionFacts = one.metadata["option"]
    option = typer.Option(
        *(facts.flags or (flag(one.name),)),
        help=facts.help,
        min=facts.minimum,
        metavar=facts.metavar,
        show_default=one.default is not None,
        rich_help_panel=facts.section,
    )
    kind = str | None if facts.parse is not None else hint
    return inspect.Parameter(
        one.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=one.default,
        annotation=Annotated[kind, option],
    )


def _value(one: Field[Any], value: Any) -> Any:
    parse = one.metadata["option"].parse
    return value if parse is None or value is None else parse(value)
