"""``report.html``: what was compiled, what it costs and what it was measured on, in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atlasc.passes.search.front import Front
from atlasc.report import svg
from atlasc.report.front_page import front_chart
from atlasc.report.html import STYLE, cards, duration, escaped, table

LAYER_COLUMNS = (
    ("levels", "levels (nonlinear)"),
    ("levels_total", "levels (all)"),
    ("bootstraps", "bootstraps"),
    ("key_switches", "key switches"),
    ("plaintext_products", "× plaintext"),
    ("ciphertext_products", "× ciphertext"),
    ("rotation_keys", "rotation keys"),
)
KIND_COLUMNS = LAYER_COLUMNS[2:6]
SHOWN_VIOLATIONS = 50


def report_html(
    facts: Mapping[str, Any],
    front: Front | None = None,
    ops: Sequence[Mapping[str, Any]] = (),
) -> str:
    """A page of its own: no script, no font and no picture from elsewhere.

    Args:
        facts: the manifest's entries, see ``stages.finish``.
        front: what a search found.
        ops: a row for each nonlinear op: location, op, layer, depth and settings (a text).
    """
    model, target = facts["model"], facts["target"]
    title = f"{model['name']} on {target}"
    length = f", {facts['sequence_length']} tokens" if facts.get("sequence_length") else ""
    parts = [
        f"<h1>{escaped(model['name'])}</h1>",
        f'<p class="sub">{escaped(model["kind"])} model, compiled for {escaped(target)} by atlasc '
        f"{escaped(facts['atlasc'])}; {facts['batch']} input(s) a run{length}</p>",
        _warnings(facts),
        _cards(facts["costs"]),
        _parameters(facts),
        _settings(facts["settings"], ops),
        _layers(facts["costs"]),
        _time(facts["costs"]),
        _calibration(facts["calibration"]),
        _front(front, facts["settings"]) if front is not None else "",
        f"<p class='sub'>data: {facts['data']['inputs']} inputs for calibration, SHA-256 "
        f"<code>{escaped(facts['data']['digest'][:16])}…</code></p>",
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}'
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
    figures = [
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
        ("predicted", _seconds(costs["seconds"])),
        ("bits of security", costs["security_bits"]),
    ]
    return cards(figures)


def _seconds(predicted: float | None) -> str:
    return "–" if predicted is None else duration(predicted)


def _parameters(facts: Mapping[str, Any]) -> str:
    parameters, moduli = facts["parameters"], facts["costs"]["moduli"]
    rows = [
        ("ring degree", f"2^{parameters['log_ring_degree']}"),
        ("slots", facts["costs"]["slots"]),
        ("log2(QP)", f"{moduli['log_qp']:.0f}"),
        ("special primes", parameters["special_primes"]),
        ("digits of a key switch (dnum)", moduli["digits"]),
        ("a key", f"{moduli['key_bytes'] / 2**20:.0f} MiB"),
        ("bootstrapping", "yes" if parameters["bootstrap"] else "no: all levels fit"),
        ("security", f"{facts['security_bits']} bits (guidelines of 2024, classical attacks)"),
        ("estimate for the weakest secret", _estimate(facts["security"])),
    ]
    return "<h2>Parameters</h2>" + table(("", "value"), rows, "text")


def _estimate(security: Mapping[str, Any]) -> str:
    if security["estimate_bits"] is None:
        return "none"
    return f"{security['estimate_bits']:.1f} bits ({security['secret']}), lattice estimator"


def _settings(settings: Mapping[str, Any], ops: Sequence[Mapping[str, Any]]) -> str:
    if "recipe" in settings:
        how = f"the recipe <code>{escaped(settings['recipe'])}</code>"
    else:
        how = f"a search (<code>{escaped(str(settings.get('strategy')))}</code>)"
    text = f"<p>Chosen by {how}"
    if "error" in settings:
        text += f"; mean absolute error of the outputs, without encryption: {settings['error']:.3g}"
    rows = [(op["location"], op["op"], op["settings"], op["depth"]) for op in ops]
    below = table(("module", "op", "polynomials", "depth"), rows, "text") if rows else ""
    return f"<h2>Polynomials</h2>{text}.</p>{below}"


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
    return "<h2>Layers</h2>" + chart + table(head, rows) + note


def _time(costs: Mapping[str, Any]) -> str:
    """Where the predicted time goes: by layer and kind of op; nothing where nobody predicts it."""
    if costs["seconds"] is None:
        return ""
    layers = [
        ("outside" if row["layer"] is None else f"layer {row['layer']}", row["kinds"])
        for row in costs["per_layer"]
    ]
    rows = [
        (row["kind"], row["ops"], *(row[key] for key, _ in KIND_COLUMNS), duration(row["seconds"]),
         f"{row['share']:.1%}")
        for row in costs["per_kind"]
    ]  # fmt: skip
    head = ("op", "ops", *(title for _, title in KIND_COLUMNS), "predicted", "share")
    text = f"<p>Predicted for {escaped(costs['machine'])}.</p>"
    return "<h2>Time</h2>" + text + svg.stacked(layers) + table(head, rows)


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
    below = ""
    if violations:
        head = ("held-back input", "module", "op", "reaches", "range")
        below = table(head, violations, "text")
        more = len(calibration["violations"]) - len(violations)
        below += f"<p class='sub'>and {more} more</p>" if more else ""
    return f"<h2>Ranges</h2>{text}{svg.ranges(rows)}{below}"


def _front(front: Front, settings: Mapping[str, Any]) -> str:
    chosen = settings.get("layers")
    rows = [
        (
            "chosen →" if [list(layer) for layer in p.settings] == chosen else "",
            p.depth,
            p.levels,
            p.error,
            p.held_back_error,
            p.out_of_range,
            " ".join("".join(map(str, layer)) for layer in p.settings),
        )
        for p in front.points
    ]
    text = (
        f"<p>{front.evaluations} evaluations in {duration(front.seconds)}, hypervolume "
        f"{front.hypervolume:.4f}; {front.held_back} inputs were held back. Settings: "
        f"{', '.join(front.parametrisation.names)}, for each layer; front.html shows degrees.</p>"
    )
    head = ("", "depth", "levels", "error", "held-back error", "out of range", "settings")
    return "<h2>Front</h2>" + text + front_chart(front) + table(head, rows)
