"""Checks the attributes of a ckks module that engines rely on.

Packing sets `slots`, the placement of bootstraps sets the levels, key planning sets the keys, and
lowering for a target sets `target` and `parameters`. Other attributes have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from atlasc.ir.bounds import MAX_INTEGER, MAX_LEVEL, MAX_SLOT_BITS

Facts = Mapping[str, Any]


def fault_of(facts: Facts) -> str:
    """What is wrong with the attributes of a ckks module; empty where nothing is."""
    for name, (meaning, holds) in _FACTS.items():
        if name in facts and not holds(facts[name]):
            return f"{name} is not {meaning}"
    if not _KEYS.isdisjoint(facts) and "slots" not in facts:
        return "it lists keys, but not the slots of its ciphertexts"
    amounts = [
        *(amount for amount, _ in facts.get("rotations", ())),
        *facts.get("bootstrap_rotations", ()),
        *(amount for sums in facts.get("composed_rotations", ()) for amount in sums),
    ]
    if amounts and max(amounts) >= facts["slots"]:
        return f"a rotation by {max(amounts)} of {facts['slots']} slots"
    return _composed_fault(facts)


def _composed_fault(facts: Facts) -> str:
    """A composed rotation must end: no rotation may be a part of itself."""
    first = {amount: part for amount, part, _ in facts.get("composed_rotations", ())}
    done: set[int] = set()
    for amount in first:
        path: set[int] = set()
        while amount in first and amount not in done:
            if amount in path:
                return f"the rotation by {amount} is composed of itself"
            path.add(amount)
            amount = first[amount]
        done |= path
    return ""


def _integer(least: int, greatest: int = MAX_INTEGER) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= greatest


def _rows(*columns: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Lists of rows with one cell for each column, whose first cells differ."""

    def holds(value: Any) -> bool:
        return (
            isinstance(value, list)
            and all(isinstance(row, list) and len(row) == len(columns) for row in value)
            and all(check(cell) for row in value for check, cell in zip(columns, row, strict=True))
            and len({row[0] for row in value}) == len(value)
        )

    return holds


def _distinct(value: Any) -> bool:
    return isinstance(value, list) and all(map(_AMOUNT, value)) and len(set(value)) == len(value)


def _slots(value: Any) -> bool:
    return _integer(1, 1 << MAX_SLOT_BITS)(value) and value.bit_count() == 1


def _name(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[a-z][a-z0-9_]{0,63}", value))


def _flat(value: Any) -> bool:
    """Whether a dictionary has a few small entries."""
    return (
        isinstance(value, dict)
        and len(value) <= 32
        and all(type(v) in (bool, int) or v == "" or _name(v) for v in value.values())
    )


_AMOUNT = _integer(1)
_LEVEL = _integer(0, MAX_LEVEL)
_KEY_LEVEL = "the level of a key, or -1"
_FACTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "slots": ("a power of two that a ciphertext may have", _slots),
    "batch_capacity": ("a positive integer", _AMOUNT),
    "levels": ("a level", _LEVEL),
    "bootstrap": ("true or false", lambda value: isinstance(value, bool)),
    "bootstrap_batch": ("a positive integer", _AMOUNT),
    "key_memory": ("a number of bytes", _integer(0)),
    "relinearization_level": (_KEY_LEVEL, _integer(-1, MAX_LEVEL)),
    "conjugation_level": (_KEY_LEVEL, _integer(-1, MAX_LEVEL)),
    "rotations": ("a list of [amount, level]", _rows(_AMOUNT, _LEVEL)),
    "bootstrap_rotations": ("a list of amounts", _distinct),
    "target": ("the name of a target", _name),
    "parameters": ("a set of integers, names and truths", _flat),
    "composed_rotations": ("a list of [amount, first, last]", _rows(_AMOUNT, _AMOUNT, _AMOUNT)),
}
_KEYS = {"rotations", "bootstrap_rotations", "composed_rotations"}
