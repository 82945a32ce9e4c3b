"""Sizes of memory in human notation."""

from __future__ import annotations

import math
import re
import reprlib

from atlasc.ir.errors import AtlasError

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DECIMAL = {unit: 1000**power for power, unit in enumerate(_UNITS)}
_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)


class KeysDoNotFit(AtlasError):
    """The keys of a program are too large.

    Args:
        what, why, remedy: see `AtlasError`.
        least: bytes of the smallest plan of keys.
    """

    def __init__(self, what: str, *, why: str = "", remedy: str = "", least: int = 0) -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.least = least


def parse_size(text: str) -> int:
    """Bytes of ``4G``, ``512M``, ``1.5 GiB``; the units are powers of 1024.

    Raises:
        AtlasError: the text is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise AtlasError(
            f"{reprlib.repr(text)} is not a size of memory", remedy="write it as 4G or 512M"
        )
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_bytes(text: str) -> int:
    """Bytes that go over a network: ``1.9G``, ``450 MB``; the units are powers of 1000.

    Raises:
        AtlasError: the text is not a number of bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None or "i" in text.lower():
        raise AtlasError(
            f"{reprlib.repr(text)} is not a number of bytes", remedy="write it as 1.9G or 450M"
        )
    return round(float(match[1]) * _DECIMAL[match[2].upper()])


def size_text(size: int) -> str:
    """A size, rounded up so that ``parse_size`` gives at least as much: ``512M``, ``4.1G``."""
    if size >= _UNITS["G"]:
        return f"{math.ceil(size / _UNITS['G'] * 10) / 10:g}G"
    unit = "M" if size >= _UNITS["M"] else "K"
    return f"{math.ceil(size / _UNITS[unit])}{unit}"
