"""A program as a picture: one column of layers, and beside it the modules of the first block.

Ops that follow each other in one module of the model are one box, so that a program of a thousand
ops stays readable.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from atlasc.ir.module import Module, Op, Value
from atlasc.passes.costs import PrimitiveCosts, ProgramCosts, merged
from atlasc.passes.execution.counting_engine import Counts
from atlasc.report.svg import BLUE, INK, ORANGE, Drawing, shares, shares_height
from atlasc.targets.costs import measured_costs
from atlasc.targets.parameters import ParameterSet

BOX, HEIGHT, GAP, MARGIN = 250.0, 46.0, 26.0, 24.0
TIMES = 700.0
"""Least width of the bars of time."""


@dataclass
class Box:
    """Ops that are drawn as one.

    Attributes:
        title: what is written in it.
        ops: in order of execution.
        sources: keys of the boxes that it reads.
        rank: row, counted from the inputs.
        column: place in its row.
    """

    title: str
    ops: list[Op] = field(default_factory=list)
    sources: dict[Hashable, None] = field(default_factory=dict)
    rank: int = 0
    column: int = 0


def draw_program(
    program: Module,
    costs: ProgramCosts,
    summary: Mapping[str, Any] | None = None,
    parameters: ParameterSet | None = None,
) -> str:
    """SVG of a ckks module with its costs.

    Args:
        program: ckks module.
        costs: read off it.
        summary: of ``costs_summary``: below the program, where its predicted time goes.
        parameters: what it runs with, for predicted seconds in each box.
    """
    primitive_costs = None if parameters is None else measured_costs(parameters)
    whole = _boxes(program, {op: _layer_key(op) for op in program.ops})
    first = min((op.layer for op in program.ops if op.layer is not None), default=None)
    inside: dict[Hashable, Box] = {}
    if first is not None:
        inside = _boxes(program, {op: _module_key(op, first) for op in program.ops})
    width = MARGIN + BOX + 3 * MARGIN
    columns = max((box.column for box in inside.values()), default=-1) + 1
    left = width + MARGIN
    total = left + columns * (BOX + MARGIN) + MARGIN if inside else width
    rows = max(box.rank for part in (whole, inside) for box in part.values()) + 1
    end = 40 + rows * (HEIGHT + GAP)
    times = _times(summary)
    if times:
        total = max(total, TIMES)
    drawing = Drawing(total, end + MARGIN)
    if times:
        drawing.height += 24 + shares_height(times, total - MARGIN)
    drawing.raw(
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
    )
    drawing.rect(0, 0, total, drawing.height, "white")
    drawing.text(MARGIN, 24, f"@{program.name}: layers", more='font-weight="bold"')
    _draw(drawing, whole, costs, primitive_costs, MARGIN)
    if inside:
        drawing.text(left, 24, f"layer {first}: modules", more='font-weight="bold"')
        _draw(drawing, inside, costs, primitive_costs, left)
    if times and summary is not None:
        title = f"predicted seconds on {summary['machine']}"
        drawing.text(MARGIN, end + 8, title, more='font-weight="bold"')
        shares(drawing, MARGIN, end + 20, times)
    return drawing.render(f"the program @{program.name}, {len(program.ops)} ops")


def _times(summary: Mapping[str, Any] | None) -> list[tuple[str, dict[str, float]]]:
    """Seconds by kind of op for each layer; empty where nothing is predicted."""
    if summary is None or summary["seconds"] is None:
        return []
    return [
        ("outside" if row["layer"] is None else f"layer {row['layer']}", row["kinds"])
        for row in summary["per_layer"]
    ]


def _layer_key(op: Op) -> Hashable:
    kind = op.name.removeprefix("ckks.")
    if kind in ("input", "public_input", "output"):
        return f"{kind} {op.attributes['name']}"
    return f"layer {op.layer}" if op.layer is not None else op.location or kind


def _module_key(op: Op, layer: int) -> Hashable | None:
    """Boxes of one block: what a module does with one nonlinear function, or its linear ops."""
    if op.layer != layer:
        return None
    parts = op.location.split(".")
    short = ".".join(parts[parts.index(str(layer)) + 1 :]) or "block"
    return f"{short} ({op.attributes.get('part') or op.name.removeprefix('ckks.')})"


def _boxes(program: Module, keys: Mapping[Op, Hashable | None]) -> dict[Hashable, Box]:
    """One box for each key; a key whose ops would make a cycle is split."""
    boxes: dict[Hashable, Box] = {}
    place: dict[Value, Hashable] = {}
    for op in program.ops:
        # A drop is drawn with what it drops.
        name = keys[op.operands[0].op if op.name == "ckks.drop" else op]
        if name is None:
            continue
        sources = {place[value] for value in op.operands if value in place}
        key = _free_key(boxes, name, sources)
        box = boxes.setdefault(key, Box(str(name)))
        box.ops.append(op)
        box.sources |= dict.fromkeys(source for source in sources if source != key)
        if op.result is not None:
            place[op.result] = key
        before = max((boxes[source].rank for source in box.sources), default=-1)
        box.rank = max(box.rank, before + 1)
    taken: dict[int, int] = {}
    for box in boxes.values():
        box.rank = max((boxes[source].rank for source in box.sources), default=-1) + 1
        box.column = taken.get(box.rank, 0)
        taken[box.rank] = box.column + 1
    return boxes


def _free_key(boxes: Mapping[Hashable, Box], name: Hashable, sources: set[Hashable]) -> Hashable:
    """The last box of that name that no source depends on; else a new one."""
    number = 0
    while (name, number) in boxes and _reaches(boxes, (name, number), sources):
        number += 1
    return (name, number)


def _reaches(boxes: Mapping[Hashable, Box], goal: Hashable, sources: set[Hashable]) -> bool:
    """Whether some source other than the goal itself depends on it."""
    pending, seen = [source for source in sources if source != goal], set(sources)
    while pending:
        for source in boxes[pending.pop()].sources:
            if source == goal:
                return True
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return False


def _draw(
    drawing: Drawing,
    boxes: Mapping[Hashable, Box],
    costs: ProgramCosts,
    primitive_costs: PrimitiveCosts | None,
    left: float,
) -> None:
    corner = {
        key: (left + box.column * (BOX + MARGIN), 40 + box.rank * (HEIGHT + GAP))
        for key, box in boxes.items()
    }
    for key, box in boxes.items():
        x, y = corner[key]
        for source in box.sources:
            from_x, from_y = corner[source]
            bend = 0.0
            if box.rank - boxes[source].rank > 1 and from_x == x:
                bend = -(BOX / 2 + 14)  # around the boxes in between
            start, end = from_x + BOX / 2, x + BOX / 2
            drawing.raw(
                f'<path d="M{start:.0f} {from_y + HEIGHT:.0f}C{start + bend:.0f} '
                f'{from_y + HEIGHT + GAP:.0f} {end + bend:.0f} {y - GAP:.0f} {end:.0f} {y:.0f}" '
                f'fill="none" stroke="{INK}" stroke-width="0.8" marker-end="url(#tip)"/>'
            )
    for key, box in boxes.items():
        _draw_box(drawing, box, costs, primitive_costs, *corner[key])


def _draw_box(
    drawing: Drawing,
    box: Box,
    costs: ProgramCosts,
    primitive_costs: PrimitiveCosts | None,
    x: float,
    y: float,
) -> None:
    counts: Counts = merged(costs.per_op[op] for op in box.ops if op in costs.per_op)
    edge = ORANGE if counts.bootstraps else BLUE
    fill = "#fdf0e3" if counts.bootstraps else "#f3f6f9"
    drawing.rect(x, y, BOX, HEIGHT, fill, f'rx="6" stroke="{edge}"')
    drawing.text(x + 10, y + 18, _shortened(box.title), more='font-weight="600"')
    facts = [_count(len(box.ops), "op")]
    if counts.key_switches:
        facts.append(f"{counts.key_switches:,} key switches")
    if counts.bootstraps:
        facts.append(_count(counts.bootstraps, "bootstrap"))
    drawing.text(x + 10, y + 35, ", ".join(facts), fill="#667")
    if primitive_costs is not None and counts.primitives:
        seconds = f"{counts.seconds(primitive_costs):.2g} s"
        drawing.text(x + BOX - 8, y + 35, seconds, "end", "#667")
    levels = [
        level
        for op in box.ops
        if op.result is not None and (level := getattr(op.result.type, "level", None)) is not None
    ]
    if levels:
        drawing.text(x + BOX - 8, y + 18, f"level {levels[-1]}", "end", "#667")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shortened(title: str) -> str:
    return title if len(title) <= 28 else f"…{title[-27:]}"
