"""Figures and settings in words, as pages show them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from atlasc.ir.errors import printable
from atlasc.polynomials.parametrisation import (
    ALGORITHM,
    DIRECT,
    EXACT,
    ITERATIVE,
    SOFTMAX_ITERATIONS,
    Parametrisation,
)
from atlasc.search.points import Settings

UNITS = (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
"""Units of a duration, and their seconds."""
UNIT_WORDS = {"s": "seconds", "min": "minutes", "h": "hours"}


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that suits a duration: the longest of which it has two."""
    return next((unit for unit in UNITS if seconds >= 2 * unit[1]), UNITS[-1])


def duration(seconds: float | None) -> str:
    """Seconds, in a suitable unit."""
    if seconds is None:
        return "–"
    if math.isinf(seconds):
        return "∞"
    unit, size = unit_of(seconds)
    return f"{seconds / size:.3g} {unit}"


def gib(size: float | None) -> str:
    """Bytes in GiB."""
    return "–" if size is None else f"{size / 2**30:.3g} GiB"


def mib(size: float) -> str:
    """Bytes in MiB, or in GiB from one of them on."""
    return gib(size) if size >= 1 << 30 else f"{size / 2**20:.3g} MiB"


def share(value: float | None, interval: Sequence[float] | None = None) -> str | None:
    """A share in per cent, with the interval in brackets; None if it is not known. Only a whole
    share is 100%.
    """
    if value is None:
        return None
    around = "" if interval is None else f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    text = "100%" if value == 1 else f"{min(value, 0.9999):.2%}"
    return f"{text}{around}"


def percent(value: float) -> str:
    """A share in per cent with two or three digits, however small it is: ``0.37%``, ``134%``."""
    if not math.isfinite(value):
        return "∞"
    if value == 0 or 0.1 <= value < 10 or value >= 1e6 or value < 1e-9:
        return f"{100 * value:.3g}%".replace("e+03", "000")
    digits = max(0, 1 - math.floor(math.log10(100 * value)))
    text = f"{100 * value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def shown(value: object) -> str:
    """A value as text: a dash for None, four digits for a float.

    Control characters are spelled out, also those that change the direction of text.
    """
    if isinstance(value, Markup):
        return value
    if value is None:
        return "–"
    if value == math.inf:
        return "∞"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def layers_in_words(settings: Settings, meaning: Parametrisation) -> list[tuple[str, str]]:
    """The settings of each run of equal layers: the layers, and a sentence on their polynomials."""
    rows: list[tuple[str, str]] = []
    start = 0
    for end in range(1, len(settings) + 1):
        if end == len(settings) or settings[end] != settings[start]:
            rows.append(
                (layers(start, end - 1), _layer(meaning.canonical(settings[start]), meaning))
            )
            start = end
    return rows


def layers(first: int, last: int) -> str:
    """Names of neighbouring layers: ``layer 3``, ``layers 0 to 5, each``."""
    return f"layer {first}" if first == last else f"layers {first} to {last}, each"


def _layer(layer: Sequence[int], meaning: Parametrisation) -> str:
    parts = ("first norm", "second norm", "activation")
    degrees = [(name, _degree(layer[5 + at], meaning)) for at, name in enumerate(parts)]
    named = "; ".join(f"{name} {words}" for name, words in degrees)
    return f"softmax {_softmax(layer, meaning)}; {named}"


def _degree(value: int, meaning: Parametrisation) -> str:
    return "exact" if value == EXACT else f"degree {meaning.degree(value)}" if value > 0 else "–"


def _softmax(layer: Sequence[int], meaning: Parametrisation) -> str:
    if layer[0] == EXACT:
        return "exact"
    algorithm = layer[ALGORITHM[0]] if len(layer) > ALGORITHM[0] else ITERATIVE
    degrees = [meaning.degree(value) for value in layer[:SOFTMAX_ITERATIONS] if value > 0]
    if algorithm == DIRECT:
        return f"direct, exponential of degree {degrees[1]}, 1/sum of degree {degrees[0]}"
    count = "1 iteration" if len(degrees) == 1 else f"{len(degrees)} iterations"
    more = meaning.algorithms[algorithm].partition(",")[2]
    return f"in {count}{more}, 1/√x of degrees {', '.join(map(str, degrees))}"


def merged_rows(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of layers in which neighbours with equal figures share a row, with a ``name``:
    ``layer 0``, ``layers 1 to 4, each``, ``outside the layers``.

    Figures are compared with three digits, because those of equal layers differ in the last.
    """

    def figures(row: dict[str, Any]) -> tuple[Any, ...]:
        known = (row[key] for key in keys)
        return row["layer"] is None, *(f"{v:.3g}" if isinstance(v, float) else v for v in known)

    found: list[dict[str, Any]] = []
    for row in rows:
        if found and figures(found[-1]) == figures(row) and row["layer"] is not None:
            found[-1]["last"] = row["layer"]
        else:
            found.append({**row, "last": row["layer"]})
    for row in found:
        first, last = row["layer"], row["last"]
        if first is None:
            row["name"] = "outside the layers"
        else:
            row["name"] = layers(first, last)
    return found
