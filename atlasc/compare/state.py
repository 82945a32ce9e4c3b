"""Where a comparison of hours stands, in a file, so that it can be interrupted.

The file holds no keys and no ciphertexts but the slots of all live values in the clear, which a
comparison knows anyway: who goes on from it makes new keys and encrypts them anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from atlasc.client.program import Packed
from atlasc.files import write_with
from atlasc.ir.bounds import MAX_LEVEL
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.arrays import read_npz
from atlasc.ir.files.json_text import Amount, Count, Schema, parse_json
from atlasc.ir.files.plain import GIB

Slots = list[tuple[np.ndarray, int]]
"""Slots and level of the ciphertexts of one value."""
LiveSlots = dict[str, tuple[Slots, Slots]]
"""By value: of the reference, and of the target."""

SIDES = ("ours", "theirs")
"""Names of the two in the file."""
MAX_STATE = 16 * GIB
"""Bytes of a checkpoint: some thousand ciphertexts in the clear."""
EVERY = 60.0
"""Seconds between two writes."""


Error = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(lambda value: float(value) if value in ("inf", "-inf", "nan") else value),
]
"""A backend that is wrong may leave any number."""


class _Record(Schema):
    """An op that was compared; see ``OpError``."""

    op: str
    value: str
    location: str
    level: int
    target_level: int
    error: Error
    bound: Error
    difference: Error
    largest: Error
    tolerance: Amount | None


Levels = list[Annotated[int, Field(ge=0, le=MAX_LEVEL)]]


class _Facts(Schema):
    """What a checkpoint says beside its arrays."""

    identity: str
    position: Count
    records: list[_Record]
    levels: dict[str, tuple[Levels, Levels]]


def _texts(record: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def comparison_identity(program: str, query: Packed, *names: str) -> str:
    """Names a comparison: of which program, which inputs, which backends."""
    state = hashlib.sha256(json.dumps([program, *names]).encode())
    for name, vectors in sorted(query.vectors.items()):
        state.update(name.encode() + np.ascontiguousarray(vectors).tobytes())
    return state.hexdigest()


class Checkpoint:
    """A file with the state of one comparison.

    Args:
        path: an ``.npz``.
        identity: of the comparison.
        every: seconds between two writes.
    """

    def __init__(self, path: Path, identity: str, every: float = EVERY) -> None:
        self.path, self.identity, self.every = path, identity, every
        self._written = time.monotonic()

    def load(self) -> tuple[int, list[dict[str, Any]], LiveSlots] | None:
        """(next op, records of the ops before it, live values); None where there is no file.

        Raises:
            AtlasError: the file is damaged, or of another comparison.
        """
        if not self.path.exists():
            return None
        arrays = read_npz(self.path, MAX_STATE, what="the checkpoint")
        try:
            facts = parse_json(str(arrays["facts"]), _Facts)
            live: LiveSlots = {}
            for name, sides in facts.levels.items():
                ours, theirs = (
                    [(arrays[f"{side}:{name}:{n}"], level) for n, level in enumerate(levels)]
                    for side, levels in zip(SIDES, sides, strict=True)
                )
                live[name] = ours, theirs
        except (ValueError, KeyError) as error:
            raise AtlasError(
                "the checkpoint cannot be read",
                where=str(self.path),
                why=str(error),
                remedy="delete it, and the comparison starts from the beginning",
            ) from None
        if facts.identity != self.identity:
            raise AtlasError(
                "the checkpoint is of another comparison",
                where=str(self.path),
                why="the program, the inputs or the backends differ",
                remedy="name another file, or delete this one",
            )
        return facts.position, [record.model_dump() for record in facts.records], live

    def save_now_and_then(
        self, position: int, ops: Sequence[Any], live: Callable[[], LiveSlots]
    ) -> None:
        """Write the state, unless that was done lately.

        Args:
            position: the op to go on with.
            ops: records (dataclasses) of the ops before it.
            live: gives the live values when called; asked only when they are written.
        """
        if time.monotonic() - self._written < self.every:
            return
        found = live()
        arrays = {
            f"{side}:{name}:{n}": slots
            for name, sides in found.items()
            for side, values in zip(SIDES, sides, strict=True)
            for n, (slots, _) in enumerate(values)
        }
        levels = {
            name: [[level for _, level in values] for values in sides]
            for name, sides in found.items()
        }
        facts = {
            "identity": self.identity,
            "position": position,
            "records": [_texts(asdict(op)) for op in ops],
            "levels": levels,
        }
        write_with(self.path, lambda draft: np.savez(draft, facts=json.dumps(facts), **arrays))  # type: ignore[arg-type]
        self._written = time.monotonic()

    def remove(self) -> None:
        """The comparison has ended."""
        self.path.unlink(missing_ok=True)
