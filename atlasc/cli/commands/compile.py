"""``atlasc compile``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.cli.costs import say_of_keys, summary_lines, warn_of_costs
from atlasc.cli.errors import warn
from atlasc.cli.output import print_json, say
from atlasc.cli.parameters import DATA, FOLDER, JSON, Model
from atlasc.cli.progress import progress
from atlasc.compilation.options import CompileOptions

if TYPE_CHECKING:
    from atlasc.bundle.folder import Bundle
    from atlasc.passes.calibration.calibrate import Calibration

SHOWN = 20
"""Violations that are listed; ``--json`` and files have all of them."""


def compile(
    model: Model,
    options: CompileOptions,
    data: Path = DATA,
    output: Path = FOLDER,
    as_json: bool = JSON,
) -> None:
    """Compile a model and its data to a program on encrypted inputs.

    Without --recipe and --front the settings of the polynomials are searched, with a modest budget.
    The cheapest setting within --max-error is taken; where only --max-depth, --max-levels or
    --max-seconds are given, the most accurate one within these. --max-seconds implies --cost
    latency, and --max-levels without --max-depth --cost levels. Settings under which a held-back
    input leaves a range are avoided.
    """
    from atlasc.compilation.checks import check_compile
    from atlasc.compilation.compile import compile_model

    check_compile(output, options)
    warn_of_costs(options.target, options.costs)
    bundle, prepared, lowered = compile_model(model, data, output, options, progress, note=warn)
    calibration = prepared.calibration
    _warn(bundle, calibration)
    if as_json:
        shown = {"model", "target", "batch", "settings", "costs"}
        held_back = {"inputs": calibration.held_back, "leaving": calibration.leaving}
        facts = bundle.manifest.model_dump(include=shown)
        place = {"bundle": str(bundle.folder), "identity": bundle.identity}
        print_json({**place, **facts, "held_back": held_back})
        return
    _show(bundle, calibration, data)
    say_of_keys(lowered.program, options.key_memory or options.device_memory)


def _warn(bundle: Bundle, calibration: Calibration) -> None:
    """Warn of what the data did not show, and of what would stop a run here."""
    settings: dict[str, Any] = bundle.manifest.settings
    if not calibration.held_back:
        warn("no input was held back", "  why: nobody knows how often a new input leaves a range")
    for violation in calibration.violations[:1]:
        warn(
            "new inputs may leave the ranges",
            f"  why: {violation}\n  what to do: give more --data, or a larger --margin",
        )
    if settings.get("out_of_range"):
        warn(
            f"{settings['out_of_range']} of {settings['held_back']} held-back inputs leave the "
            "range of a polynomial",
            "  why: no setting within the limits has fewer, or --out-of-range allows it\n"
            "  what to do: relax the limits, give more --data, or a larger --margin",
        )
    costs: Any = bundle.manifest.costs
    _warn_of_machine(bundle.target, costs["memory_bytes"])


def _warn_of_machine(target: str, needed: int) -> None:
    """Say now what would stop a run here; the program may be meant for another machine."""
    from atlasc.ir.errors import AtlasError
    from atlasc.targets import find_target
    from atlasc.targets.machine import available_bytes

    found = find_target(target)
    if not found.encrypted or found.writes_project:
        return
    try:
        found.check()
    except AtlasError as error:
        warn(error.what, f"  what to do: {error.remedy}" if error.remedy else "")
    free = available_bytes()
    if free is not None and free < needed:
        warn(
            "this machine has too little free memory to run the program",
            f"  why: it needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
        )


def _show(bundle: Bundle, calibration: Calibration, data: Path) -> None:
    from atlasc.compilation.compile import PROJECT

    list_held_back(calibration)
    settings: dict[str, Any] = bundle.manifest.settings
    how = settings.get("recipe") or f"search ({settings.get('strategy')})"
    say(f"settings: {how}, mean error of the polynomials {settings['error']:.3g}")
    if settings.get("out_of_range") is not None:
        say(
            f"on {settings['held_back']} held-back inputs: error "
            f"{float(settings['held_back_error']):.3g}, {settings['out_of_range']} leave the range "
            "of a polynomial"
        )
    for line in summary_lines(dict(bundle.manifest.costs)):
        say(line)
    say(f"written to {bundle.folder} for {bundle.target}; {bundle.folder / 'report.html'}")
    project = bundle.folder / PROJECT
    if project.is_dir():
        place = shlex.quote(str(project))
        say(f"next, where CUDA and Phantom are: see {project / 'README.md'};")
        say(f"  cmake -S {place} -B {place}/build && cmake --build {place}/build")
        return
    place = shlex.quote(str(bundle.folder))
    say(f"next: atlasc run {place} --input {shlex.quote(str(data))} --index 0")


def list_held_back(found: Calibration) -> None:
    """Say how many held-back inputs leave a range, and list the first of them."""
    if not found.held_back:
        return
    print(f"{found.leaving} of {found.held_back} held-back inputs leave a range")
    for violation in found.violations[:SHOWN]:
        say(f"  {violation}")
    if len(found.violations) > SHOWN:
        print(f"  and {len(found.violations) - SHOWN} more")
