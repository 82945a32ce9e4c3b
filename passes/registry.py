"""Every pass that ``atlasc opt`` runs: passes of the pipeline, further passes of this package, and
passes of other installed packages.

Another package registers a pass by an entry point of the group ``atlasc.passes``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from atlasc.ir.plugins import loaded, misnamed, plugins
from atlasc.passes.framework.notation import NAME
from atlasc.passes.framework.pass_base import Pass, levels_of
from atlasc.passes.generation.cut_head import CutHead
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.generation.prefill import Prefill
from atlasc.passes.lowering.forget_calibration import ForgetCalibration
from atlasc.passes.pipeline import PIPELINE

ALONE: tuple[type[Pass], ...] = (ForgetCalibration, DecodeStep, Prefill, CutHead)
"""Passes of this package that run only in ``atlasc opt``, never in a compilation."""
GROUP = "atlasc.passes"
WHEN = {
    "always": "always",
    "settings": "with the choices of a calibration or a search",
    "cheaper": "if it makes the program cheaper",
}
TABLE_MARKS = ("<!-- passes: begin -->", "<!-- passes: end -->")
"""Marks around the table of ``passes_table`` in a document."""


@cache
def passes() -> dict[str, type[Pass]]:
    """Name -> pass, in the order of the pipeline, followed by the others.

    Raises:
        AtlasError: an installed package registers an object that is no pass, cannot be imported,
            or has a name that is taken.
    """
    found = {kind.name: kind for kind in (*PIPELINE, *ALONE)}
    for entry in plugins(GROUP).values():
        kind = loaded(entry, lambda one: _fault(one, found))
        found[kind.name] = kind
    return found


def _fault(kind: object, taken: Mapping[str, type[Pass]]) -> str:
    """Why the object of a plug-in is no new pass; empty if it is."""
    if not (isinstance(kind, type) and issubclass(kind, Pass)):
        return "its object is no class of atlasc.passes.framework.pass_base.Pass"
    if kind.name in taken:
        return f"its name {kind.name} is taken by another pass"
    return misnamed(kind.name, NAME)


def describe(kind: type[Pass]) -> tuple[str, str]:
    """A pass's options with their defaults (``levels=14,bootstrap=true``), and its summary."""
    return kind().options, " ".join((kind.__doc__ or "").strip().split("\n\n")[0].split())


def passes_table() -> str:
    """The passes of this package as a table in Markdown."""
    rows = ["| Pass | Level | Needs | Runs | What it does |", "|---|---|---|---|---|"]
    root = Path(__file__).resolve().parent
    for kind in (*PIPELINE, *ALONE):
        file = Path(inspect.getfile(kind)).resolve().relative_to(root).as_posix()
        levels = ", ".join(levels_of(kind)) + ("" if kind.gives is None else f" → {kind.gives}")
        when = WHEN[kind.when] if kind in PIPELINE else "only in `atlasc opt`"
        needs = ", ".join(analysis.name for analysis in kind.needs)
        name, what = f"[`{kind.name}`](../passes/{file})", describe(kind)[1]
        rows.append(f"| {name} | {levels} | {needs} | {when} | {what} |")
    return "\n".join(rows)


def with_passes_table(document: str) -> str:
    """A document in which the table between the marks is brought up to date."""
    begin, end = TABLE_MARKS
    before, _, rest = document.partition(begin)
    return f"{before}{begin}\n{passes_table()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        place.write_text(with_passes_table(place.read_text(encoding="utf-8")), encoding="utf-8")
