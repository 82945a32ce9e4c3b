"""A program as a picture: one column of layers, and beside it the modules of the first block.

Ops that follow each other in one module of the model are one box, so that a program of a thousand
ops stays readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

import networkx

from atlasc.ir.module import Module, Op, Value
from atlasc.program.costs import PrimitiveCosts, ProgramCosts, merged
from atlasc.report.svg import BLUE, INK, ORANGE, Drawing, shares, times
from atlasc.targets.costs import measured_costs
from atlasc.targets.parameters import ParameterSet

HEIGHT, GAP, MARGIN = 46.0, 26.0, 24.0
LETTER = 7.0
"""Width of a letter, in pixels: an upper bound on the mean in a bold line of text."""
LONGEST = 40
"""Letters of a box's title; of a longer name the end is shown."""
TIMES = 700.0
"""Least width of the bars of time, in pixels."""
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
)


def draw_program(
    program: Module,
    costs: ProgramCosts,
    summary: Mapping[str, Any] | None = None,
    parameters: ParameterSet | None = None,
) -> str:
    """SVG of a ckks module with its costs.

    Args:
        program: ckks module.
        costs: costs counted on the program.
        summary: ``costs_summary`` of it; adds the predicted time below the program.
        parameters: parameter set of the program; adds predicted seconds to each box.
    """
    whole = _boxes(program, {op: _layer_name(op) for op in program.ops})
    first = min((op.layer for op in program.ops if op.layer is not None), default=None)
    inside = networkx.DiGraph()
    if first is not None:
        inside = _boxes(program, {op: _module_name(op, first) for op in program.ops})
    primitive_costs = None if parameters is None else measured_costs(parameters)
    for part in (whole, inside):
        for box, known in part.nodes.items():
            known["label"] = _label(box[0], known["ops"], costs, primitive_costs)
    labels = [known["label"] for part in (whole, inside) for known in part.nodes.values()]
    width = max((label.width for label in labels), default=0.0)
    title = f"@{program.name}: layers"
    left = total = MARGIN + max(_wide(whole, width), LETTER * len(title)) + 2 * MARGIN
    if inside:
        total = left + _wide(inside, width) + MARGIN
    ranks = [rank for part in (whole, inside) for _, rank in part.nodes.data("rank")]
    end = 40 + (max(ranks) + 1) * (HEIGHT + GAP)
    rows = [] if summary is None else times(summary)
    drawing = Drawing(max(total, TIMES) if rows else total, end + MARGIN)
    drawing.shapes.append(ElementTree.fromstring(TIP))
    drawing.add("rect", width="100%", height="100%", fill="white")
    drawing.text(MARGIN, 24, title, font_weight="bold")
    _draw(drawing, whole, MARGIN, width)
    if inside:
        drawing.text(left, 24, f"layer {first}: modules", font_weight="bold")
        _draw(drawing, inside, left, width)
    if rows and summary is not None:
        title = f"predicted seconds on {summary['machine']}"
        drawing.text(MARGIN, end + 8, title, font_weight="bold")
        drawing.height = shares(drawing, MARGIN, end + 20, rows) + 28
    return drawing.render(f"the program @{program.name}, {len(program.ops)} ops")


def _wide(boxes: networkx.DiGraph, width: float) -> float:
    columns = 1 + max((column for _, column in boxes.nodes.data("column")), default=0)
    return columns * (width + MARGIN)


class _Label(NamedTuple):
    """The four texts in the corners of a box, and whether there are bootstraps in it."""

    title: str
    level: str
    facts: str
    seconds: str
    bootstraps: bool

    @property
    def width(self) -> float:
        """Width of a box in which no two of the texts meet, in pixels."""
        lines = (self.title, self.level), (self.facts, self.seconds)
        return 30 + LETTER * max(len(left) + len(right) for left, right in lines)


def _label(
    name: str, ops: Sequence[Op], costs: ProgramCosts, primitive_costs: PrimitiveCosts | None
) -> _Label:
    counts = merged(costs.per_op[op] for op in ops if op in costs.per_op)
    facts = [_count(len(ops), "op")]
    if counts.key_switches:
        facts.append(_count(counts.key_switches, "key switch", "es"))
    if counts.bootstraps:
        facts.append(_count(counts.bootstraps, "bootstrap"))
    levels = [getattr(op.result.type, "level", None) for op in ops if op.result is not None]
    known = [level for level in levels if level is not None]
    timed = primitive_costs is not None and counts.primitives
    return _Label(
        name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}",
        f"level {known[-1]}" if known else "",
        ", ".join(facts),
        f"{counts.seconds(primitive_costs):.2g} s" if timed and primitive_costs else "",
        bool(counts.bootstraps),
    )


def _layer_name(op: Op) -> str:
    kind = op.name.removeprefix("ckks.")
    if kind in ("input", "public_input", "output"):
        return f"{kind} {op.attributes['name']}"
    return f"layer {op.layer}" if op.layer is not None else op.location or kind


def _module_name(op: Op, layer: int) -> str | None:
    """Name of an op's box in a block: its module, with the nonlinear function that it belongs
    to.
    """
    if op.layer != layer:
        return None
    short = op.location.removeprefix(op.block or "").removeprefix(".") or "block"
    return f"{short} ({op.attributes.get('part') or op.name.removeprefix('ckks.')})"


def _boxes(program: Module, names: Mapping[Op, str | None]) -> networkx.DiGraph:
    """The graph of boxes; an edge leads from a box to a box that reads it.

    A box is (name, number). It has ``ops`` in order of execution, ``rank``, its row counted from
    the inputs, and ``column``, its place in the row. A name has one box, unless its ops would make
    a cycle.
    """
    boxes = networkx.DiGraph()
    place: dict[Value, tuple[str, int]] = {}
    for op in program.ops:
        # A level drop is drawn in the box of its operand.
        name = names[op.operands[0].op if op.name == "ckks.drop" else op]
        if name is None:
            continue
        sources = dict.fromkeys(place[value] for value in op.operands if value in place)
        box = (name, 0)
        while box in boxes and any(
            source != box and networkx.has_path(boxes, box, source) for source in sources
        ):
            box = (name, box[1] + 1)
        if box not in boxes:
            boxes.add_node(box, ops=[])
        boxes.nodes[box]["ops"].append(op)
        boxes.add_edges_from((source, box) for source in sources if source != box)
        if op.result is not None:
            place[op.result] = box
    order = list(boxes)
    for rank, row in enumerate(networkx.topological_generations(boxes)):
        for column, box in enumerate(sorted(row, key=order.index)):
            boxes.nodes[box].update(rank=rank, column=column)
    return boxes


def _draw(drawing: Drawing, boxes: networkx.DiGraph, left: float, width: float) -> None:
    corner = {
        box: (left + known["column"] * (width + MARGIN), 40 + known["rank"] * (HEIGHT + GAP))
        for box, known in boxes.nodes.items()
    }
    for source, box in boxes.edges:
        (from_x, from_y), (x, y) = corner[source], corner[box]
        bend = 0.0
        if y - from_y > HEIGHT + GAP and from_x == x:
            bend = -(width / 2 + 14)  # around the boxes in between
        start, end = from_x + width / 2, x + width / 2
        drawing.add(
            "path",
            d=f"M{start:.0f} {from_y + HEIGHT:.0f}C{start + bend:.0f} "
            f"{from_y + HEIGHT + GAP:.0f} {end + bend:.0f} {y - GAP:.0f} {end:.0f} {y:.0f}",
            fill="none",
            stroke=INK,
            stroke_width=0.8,
            marker_end="url(#tip)",
        )
    for box, (x, y) in corner.items():
        label: _Label = boxes.nodes[box]["label"]
        edge, fill = (ORANGE, "#fdf0e3") if label.bootstraps else (BLUE, "#f3f6f9")
        drawing.rect(x, y, width, HEIGHT, fill, rx=6, stroke=edge)
        drawing.text(x + 10, y + 18, label.title, font_weight="600")
        drawing.text(x + 10, y + 35, label.facts, fill="#556")
        drawing.text(x + width - 8, y + 18, label.level, "end", "#556")
        drawing.text(x + width - 8, y + 35, label.seconds, "end", "#556")


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"
