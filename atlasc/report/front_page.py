"""``front.html``: what a search found, to be looked at and chosen from, in one file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from string import Template

from atlasc.passes.approximation.parametrisation import Parametrisation
from atlasc.passes.search.front import Front
from atlasc.passes.search.point import Point
from atlasc.passes.search.space import Settings
from atlasc.report import svg
from atlasc.report.html import STYLE, cards, cell, duration, escaped, heads, table

COLUMNS = (
    "depth", "levels", "error", "held-back error", "out of range", "predicted, one run",
)  # fmt: skip
SHADE = "rgba(47,109,179,{:.2f})"


def front_html(front: Front, accurate: float = 0.0) -> str:
    """A page of its own: it needs no network, and no script but its own few lines.

    Args:
        front: what a search found.
        accurate: the settings of the cheapest point with at most this error are shown first.
    """
    facts = front.facts
    template = files("atlasc.report").joinpath("templates/front.html").read_text(encoding="utf-8")
    length = f", {facts['sequence_length']} tokens" if facts.get("sequence_length") else ""
    return Template(template).substitute(
        title=escaped(f"Front of {facts.get('model', 'a model')}"),
        style=STYLE,
        subtitle=escaped(f"{front.cost} against error{length}; strategy {front.strategy}"),
        notes=_notes(front),
        cards=cards(
            [
                ("settings on the front", len(front.points)),
                ("hypervolume", front.hypervolume),
                ("evaluations", front.evaluations),
                ("of them different", front.distinct),
                ("search", duration(front.seconds)),
                ("inputs compared", facts.get("search_inputs")),
                ("inputs held back", front.held_back),
            ]
        ),
        chart=front_chart(front),
        columns=heads(("", *COLUMNS)),
        rows="\n".join(_rows(front)),
        settings="\n".join(
            _settings(str(index), point, front.parametrisation)
            for index, point in enumerate(front.points)
        ),
        facts=_facts(front),
        chosen=_first_shown(front.points, accurate),
    )


def _notes(front: Front) -> str:
    notes = []
    if not front.complete:
        notes.append("The search was interrupted: this is the front of the evaluations so far.")
    if not front.points:
        notes.append("No setting stays finite on the search inputs.")
    elif not front.held_back:
        notes.append("No input was held back: nobody knows whether new ones stay in range.")
    elif any(point.out_of_range is None for point in front.points):
        notes.append("Only points that have a held-back error were tried on held-back inputs.")
    elif all(point.out_of_range for point in front.points):
        notes.append(
            "Under every setting held-back inputs leave a range. A polynomial explodes outside "
            "its range, and nothing in a ciphertext says so."
        )
    return "\n".join(f'<p class="warn">{escaped(note)}</p>' for note in notes)


def front_chart(front: Front) -> str:
    """The front with the setting ``is``; red are points under which inputs leave a range."""

    def dot(name: str, point: Point) -> svg.Dot:
        colour = svg.RED if point.out_of_range else svg.BLUE
        return svg.Dot(point.cost(front.cost), point.error, f"{name}{point}", colour)

    expert = None if front.expert is None else dot("is: ", front.expert)
    return svg.front([dot("", point) for point in front.points], front.cost, expert)


def _rows(front: Front) -> list[str]:
    rows = [
        f'<tr data-point="{index}" tabindex="0">{_cells(str(index + 1), point)}</tr>'
        for index, point in enumerate(front.points)
    ]
    if front.expert is not None:
        rows.append(f"<tr>{_cells('is', front.expert)}</tr>")
    return rows


def _cells(name: str, point: Point) -> str:
    values = (
        point.depth, point.levels, point.error, point.held_back_error, point.out_of_range,
        None if point.seconds is None else duration(point.seconds),
    )  # fmt: skip
    cells = [f"<td>{escaped(name)}</td>"]
    for column, value in zip(COLUMNS, values, strict=True):
        bad = column == "out of range" and value
        cells.append(
            f'<td class="left-by">{cell(value)}</td>' if bad else f"<td>{cell(value)}</td>"
        )
    return "".join(cells)


def _settings(number: str, point: Point, parametrisation: Parametrisation) -> str:
    return (
        f'<section class="point" id="point-{number}"><p>{escaped(str(point))}</p>'
        f'<div class="scroll"><table class="settings"><thead><tr>'
        f"{heads(('layer', *parametrisation.names))}</tr></thead>\n"
        f"<tbody>{_layers(point.settings, parametrisation)}</tbody></table></div></section>"
    )


def _layers(settings: Settings, parametrisation: Parametrisation) -> str:
    rows = []
    for number, layer in enumerate(settings):
        cells = "".join(
            _cell(name, value, high, parametrisation)
            for name, value, high in zip(
                parametrisation.names, layer, parametrisation.upper, strict=True
            )
        )
        rows.append(f"<tr><td>{number}</td>{cells}</tr>")
    return "\n".join(rows)


def _cell(name: str, value: int, high: int, parametrisation: Parametrisation) -> str:
    if name == "softmax algorithm":
        return f"<td>{escaped(parametrisation.algorithms[value])}</td>"
    if value <= 0:
        return "<td>–</td>"
    shade = SHADE.format(0.75 * value / high)
    return f'<td style="background: {shade}">{parametrisation.degree(value)}</td>'


def _facts(front: Front) -> str:
    options = front.facts.get("options", {})
    switches = front.parametrisation.to_dict()
    rows = {
        "strategy": front.strategy,
        **{f"option {name}": value for name, value in options.items()},
        **{name.replace("_", " "): value for name, value in switches.items()},
        "reference point": f"{front.cost} {front.reference[0]:g}, error {front.reference[1]:g}",
        **{
            name.replace("_", " "): value
            for name, value in front.facts.items()
            if name not in ("options", "seed")
        },
    }
    return table(("", "value"), rows.items(), "text")


def _first_shown(points: Sequence[Point], accurate: float) -> int:
    return next((i for i, p in enumerate(points) if p.error <= accurate), len(points) - 1)
