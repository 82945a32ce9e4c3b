"""``atlasc opt``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli.parameters import FOR_TARGET
from atlasc.compilation.declared import option

if TYPE_CHECKING:
    from atlasc.ir.module import Module
    from atlasc.passes.framework.pass_base import Pass, Report
    from atlasc.targets.base import Target


def opt(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help=".air file, or - for standard input."),
    ] = None,
    passes: str = option("", "pass-a,pass-b{x=1}; none only checks the text.", "-p"),
    output: Path | None = option(None, "File to write instead, .air.", "-o"),
    print_ir_after_all: bool = option(False, "Print each pass's result on standard error."),
    verify_each: bool = option(
        False, "Also check that the text of each result reads back as the same module."
    ),
    explain: bool = option(False, "Print what each pass did, and did not, on standard error."),
    target: str = FOR_TARGET,
    list_passes: bool = option(False, "List the passes and exit.", "--list"),
) -> None:
    """Run passes on IR text: text in, text out.

    Arrays are read from the .safetensors beside FILE; without it they are zeros. The verifier runs
    on the input and after every pass.
    """
    if list_passes:
        _list()
        return
    if file is None:
        raise typer.BadParameter("give a .air file, - for standard input, or --list")
    from atlasc.files import require_file_place, write_module
    from atlasc.ir.text.printer import print_module
    from atlasc.ir.verifier import verify
    from atlasc.passes.framework.pass_base import parse_pipeline, run_passes
    from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
    from atlasc.passes.registry import PASSES, check_level
    from atlasc.targets import find_target
    from atlasc.targets.program import with_matching_parameters

    if output is not None:
        require_file_place(output, ".air")
    chosen = find_target(target)
    steps = parse_pipeline(passes, PASSES)
    module, arrays = _read(file)
    verify(module)

    def after(step: Pass, result: Module, report: Report) -> None:
        if explain:
            for line in report.lines or ["nothing to report"]:
                print(f"{step.name}: {line}", file=sys.stderr)
        if print_ir_after_all:
            print(f"// --- after {step} ---\n{print_module(result)}", file=sys.stderr)
        if verify_each:
            _check_round_trip(step, result)

    for step in steps:
        check_level(step, module)
        module = run_passes(module, [_equipped(step, module, chosen)], after_each=after)
        if isinstance(step, PlaceBootstraps):
            module = with_matching_parameters(module, chosen)
    if output is None:
        print(print_module(module), end="")
    else:
        write_module(output, module, arrays=arrays)


def _equipped(step: Pass, module: Module, target: Target) -> Pass:
    """A pass with what it has to know of the backend: costs of ops, sizes and costs of keys."""
    from atlasc.compilation.lowering import key_model
    from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
    from atlasc.passes.lowering.rotation_keys import RotationKeys
    from atlasc.targets.costs import costs_of
    from atlasc.targets.program import parameters_of

    if isinstance(step, PlaceBootstraps):
        slots = module.attributes["slots"]
        found = target.parameters.matching(slots, step.levels, step.bootstrap)
        costs = None if found is None else costs_of(found)
        return replace(step, costs=costs, fewest=costs is not None)
    if isinstance(step, RotationKeys):
        found = parameters_of(module)
        return step if found is None else replace(step, model=key_model(found))
    return step


def _read(file: str) -> tuple[Module, bool]:
    """The module, and whether its arrays are there."""
    from atlasc.ir.text.parser import parse
    from atlasc.ir.text.storage import load_module

    if file == "-":
        return parse(_standard_input(), {}, "standard input"), False
    path = Path(file)
    return load_module(path), path.with_suffix(".safetensors").exists()


def _standard_input() -> str:
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.text.storage import MAX_TEXT

    content = sys.stdin.buffer.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise AtlasError("standard input is too large", why=f"a text has at most {MAX_TEXT} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AtlasError("standard input is not UTF-8 text", why=str(error)) from None


def _check_round_trip(step: Pass, module: Module) -> None:
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.text.parser import parse
    from atlasc.ir.text.printer import print_module

    text = print_module(module)
    if print_module(parse(text, module.symbols, f"after {step.name}")) != text:
        raise AtlasError(
            f"after {step.name}: the text of the module does not read back as the same module",
            remedy="this is a bug in the pass; please report it with the module's text",
        )


def _list() -> None:
    from atlasc.passes.registry import PASSES, describe

    for name, kind in PASSES.items():
        options, text = describe(kind)
        print(f"{name}{{{options}}}" if options else name)
        print(f"    {text}")
