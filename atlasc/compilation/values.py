"""From the text of an option to its value. The module imports no library at its top level."""

from __future__ import annotations

from atlasc.compilation.declared import choose
from atlasc.ir.errors import AtlasError
from atlasc.loading import LONG
from atlasc.passes.lowering.keys.sizes import parse_size

ALL_MEMORY = float("inf")
"""A key memory without a limit."""
RANGES_FROM = ("measured", "certified")
MEASURES = ("class", "tokens", "values")
"""See `atlasc.passes.simulation.agreement`."""


def parse_memory(text: str) -> float:
    """Bytes of ``4G``, or infinity for ``all``; raises AtlasError for anything else."""
    return ALL_MEMORY if text == "all" else parse_size(text)


def parse_long(text: str) -> str:
    """One of ``LONG``; raises AtlasError for anything else."""
    return choose("--long", text, LONG)


def parse_ranges(text: str) -> str:
    """One of ``RANGES_FROM``; raises AtlasError for anything else."""
    return choose("--ranges", text, RANGES_FROM)


def parse_share(text: str) -> float:
    """The share of ``0.1%`` or ``0.001``; raises AtlasError for anything else."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise AtlasError(f"{text!r} is no share", remedy="give one such as 0.1% or 0.001") from None


def parse_measure(text: str) -> str:
    """One of ``MEASURES``; raises AtlasError for anything else."""
    return choose("--measure", text, MEASURES)
