"""``report.html``: what was compiled, what it costs and what it was measured on, in one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from atlasc import svg

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 900px; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem;
       border-bottom: 1px solid #d8dde3; }
p.sub { color: #667; margin-top: .2rem; }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; }
.card { background: #f3f6f9; border-radius: 8px; padding: .5rem .9rem; min-width: 7.5rem; }
.card b { display: block; font-size: 1.25rem; } .card span { color: #667; font-size: .8rem; }
.warn { background: #fdf0e3; border-left: 4px solid #d98324; padding: .5rem .9rem; }
.bad { background: #fbe9e7; border-left: 4px solid #c0392b; padding: .5rem .9rem; }
table { border-collapse: collapse; font-size: .85rem; width: 100%; }
th, td { padding: .2rem .5rem; text-align: right; border-bottom: 1px solid #eef1f4; }
th { color: #667; font-weight: 600; } td:first-child, th:first-child { text-align: left; }
.text td { text-align: left; } .scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
code { background: #f3f6f9; padding: 0 .2rem; }
"""

LAYER_COLUMNS = (
    ("levels", "levels (nonlinear)"),
    ("levels_total", "levels (all)"),
    ("bootstraps", "bootstraps"),
    ("key_switches", "key switches"),
    ("plaintext_products", "× plaintext"),
    ("ciphertext_products", "× ciphertext"),
    ("rotation_keys", "rotation keys"),
)
SHOWN_VIOLATIONS = 50


def report_html(
    facts: Mapping[str, Any],
    front: Mapping[str, Any] | None = None,
    ops: Sequence[Mapping[str, Any]] = (),
) -> str:
    """A page of its own: no script, no font and no picture from elsewhere.

    Args:
        facts: the manifest's entries, see ``driver.finish``.
        front: what a search found, as ``Front.to_dict`` writes it.
        ops: a row for each nonlinear op: location, op, layer, depth and settings (a text).
    """
    model, target = facts["model"], facts["target"]
    title = f"{model['name']} on {target}"
    length = f", {facts['sequence_length']} tokens" if facts.get("sequence_length") else ""
    parts = [
        f"<h1>{escape(model['name'])}</h1>",
        f'<p class="sub">{escape(model["kind"])} model, compiled for {escape(target)} by atlasc '
        f"{escape(facts['atlasc'])}; {facts['batch']} input(s) a run{length}</p>",
        _warnings(facts),
        _cards(facts["costs"]),
        _parameters(facts),
        _settings(facts["settings"], ops),
        _layers(facts["costs"]),
        _calibration(facts["calibration"]),
        _front(front, facts["settings"]) if front is not None else "",
        f"<p class='sub'>data: {facts['data']['inputs']} inputs for calibration, SHA-256 "
        f"<code>{escape(facts['data']['digest'][:16])}…</code></p>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f'</title><meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"\n<body>\n{chr(10).join(part for part in parts if part)}\n</body></html>\n"
    )


def _warnings(facts: Mapping[str, Any]) -> str:
    boxes = []
    if facts["insecure"]:
        boxes.append(
            f'<p class="bad">Not secure: {facts["security_bits"]} bits. For tests only.</p>'
        )
    calibration = facts["calibration"]
    leaving = len({violation["input"] for violation in calibration["violations"]})
    if leaving:
        boxes.append(
            f'<p class="warn">{leaving} of {calibration["held_back"]} held-back inputs leave a '
            "calibrated range. A polynomial explodes outside its range, and nothing in a "
            "ciphertext says so.</p>"
        )
    return "\n".join(boxes)


def _cards(costs: Mapping[str, Any]) -> str:
    outside = costs["levels_outside"]
    cards = [
        ("depth (as papers count)", costs["depth"]),
        (
            "levels of nonlinear ops" + (f" (+{outside} outside)" if outside else ""),
            costs["levels"],
        ),
        ("levels in all", costs["levels_total"]),
        ("bootstraps", costs["bootstraps"]),
        ("key switches", costs["key_switches"]),
        ("rotation keys", costs["rotation_keys"]),
        ("memory", f"{costs['memory_bytes'] / 2**30:.1f} GiB"),
        ("predicted, two cores", _seconds(costs["seconds"])),
        ("bits of security", costs["security_bits"]),
    ]
    body = "".join(
        f'<div class="card"><b>{_cell(value)}</b><span>{escape(name)}</span></div>'
        for name, value in cards
    )
    return f'<div class="cards">{body}</div>'


def _parameters(facts: Mapping[str, Any]) -> str:
    parameters = facts["parameters"]
    rows = [
        ("ring degree", f"2^{parameters['log_ring_degree']}"),
        ("slots", facts["costs"]["slots"]),
        ("special primes", parameters["special_primes"]),
        ("bootstrapping", "yes" if parameters["bootstrap"] else "no: all levels fit"),
        ("security", f"{facts['security_bits']} bits (homomorphic encryption standard, classical)"),
    ]
    return "<h2>Parameters</h2>" + _table(("", "value"), rows, "text")


def _settings(settings: Mapping[str, Any], ops: Sequence[Mapping[str, Any]]) -> str:
    if "recipe" in settings:
        how = f"the recipe <code>{escape(settings['recipe'])}</code>"
    else:
        how = f"a search (<code>{escape(str(settings.get('strategy')))}</code>)"
    text = f"<p>Chosen by {how}"
    if "error" in settings:
        text += f"; mean absolute error of the outputs, without encryption: {settings['error']:.3g}"
    rows = [(op["location"], op["op"], op["settings"], op["depth"]) for op in ops]
    table = _table(("module", "op", "polynomials", "depth"), rows, "text") if rows else ""
    return f"<h2>Polynomials</h2>{text}.</p>{table}"


def _layers(costs: Mapping[str, Any]) -> str:
    layers = costs["per_layer"]
    names = ["outside" if row["layer"] is None else str(row["layer"]) for row in layers]
    chart = svg.columns(
        names,
        [
            ("levels", [row["levels_total"] for row in layers], svg.BLUE),
            ("bootstraps", [row["bootstraps"] for row in layers], svg.ORANGE),
            ("key switches", [row["key_switches"] for row in layers], "#7a9e6d"),
        ],
    )
    rows = [
        (name, row["depth"], *(row[key] for key, _ in LAYER_COLUMNS), _seconds(row["seconds"]))
        for name, row in zip(names, layers, strict=True)
    ]
    head = ("layer", "depth", *(title for _, title in LAYER_COLUMNS), "predicted")
    note = "<p class='sub'>“outside” is what lies outside the Transformer blocks.</p>"
    return "<h2>Layers</h2>" + chart + _table(head, rows) + note


def _calibration(calibration: Mapping[str, Any]) -> str:
    left: dict[tuple[str, str], int] = {}
    for violation in calibration["violations"]:
        key = violation["location"], violation["op"]
        left[key] = left.get(key, 0) + 1
    rows = [
        (
            f"{r['location'] or 'model'} {r['op'].removeprefix('nn.')}"[-44:],
            r["low"],
            r["high"],
            r["seen_low"],
            r["seen_high"],
            bool(left.get((r["location"], r["op"]))),
        )
        for r in calibration["ranges"]
    ]
    margin = calibration["margin"]
    how = "chosen from the tail that was seen" if margin is None else f"{margin:.0%}"
    leaving = len({violation["input"] for violation in calibration["violations"]})
    text = (
        f"<p>Measured on {calibration['inputs']} inputs, margin {how}. {leaving} of "
        f"{calibration['held_back']} held-back inputs leave a range. Grey: the range of the "
        "polynomial; coloured: what the inputs reached.</p>"
    )
    violations = [
        (v["input"], v["location"], v["op"], v["reached"], f"{v['low']:.4g} … {v['high']:.4g}")
        for v in calibration["violations"][:SHOWN_VIOLATIONS]
    ]
    table = ""
    if violations:
        head = ("held-back input", "module", "op", "reaches", "range")
        table = _table(head, violations, "text")
        more = len(calibration["violations"]) - len(violations)
        table += f"<p class='sub'>and {more} more</p>" if more else ""
    return f"<h2>Ranges</h2>{text}{svg.ranges(rows)}{table}"


def _front(front: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    cost, points = front["cost"], front["front"]
    chart = svg.front(
        [(p[cost], p["error"], f"{cost} {p[cost]}, error {p['error']:.3g}") for p in points], cost
    )
    chosen = settings.get("layers")
    rows = [
        (
            "chosen →" if p["settings"] == chosen else "",
            p["depth"],
            p["levels"],
            p["error"],
            " ".join("".join(map(str, layer)) for layer in p["settings"]),
        )
        for p in points
    ]
    text = (
        f"<p>{front['evaluations']} evaluations in {_seconds(front['seconds'])}, hypervolume "
        f"{front['hypervolume']:.4f}. Settings: p₁…p₅ of the softmax, two norms, the activation, "
        "for each layer.</p>"
    )
    head = ("", "depth", "levels", "error", "settings")
    return "<h2>Front</h2>" + text + chart + _table(head, rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{top}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
