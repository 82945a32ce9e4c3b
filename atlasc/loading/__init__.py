"""Models and data: read from files without running code from them, and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from atlasc.ir.module import Op

LONG = ("truncate", "windows", "refuse")
"""Treatment of a text that is too long: cut it at its end, divide it into several inputs, or refuse
the data."""
IDS, MASK, SEGMENTS, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
"""Inputs with one number per token, under their HuggingFace names."""


class Padding(NamedTuple):
    """The input of token ids, and the id of padding in it."""

    name: str
    token: int


def padding_of(inputs: Iterable[Op]) -> Padding | None:
    """The ids and that of padding, of a program that computes its mask from them; else None."""
    known = (op.attributes for op in inputs)
    return next((Padding(of["name"], of["padding"]) for of in known if "padding" in of), None)
