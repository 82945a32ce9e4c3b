"""The state of a comparison that takes hours, in a file, so that it can be interrupted.

The file holds the slots of all live values in the clear, which a comparison knows anyway, and
neither keys nor ciphertexts. A comparison that continues from it makes new keys and encrypts the
slots again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field

from atlasc.client.program import Packed
from atlasc.compare.lock_step import LiveSlots, OpError
from atlasc.files import write_with
from atlasc.ir.bounds import MAX_LEVEL
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.arrays import read_npz
from atlasc.ir.files.json_text import STRICT, Count, Schema, parse_json
from atlasc.ir.files.plain import GIB

SIDES = ("ours", "theirs")
"""Names of reference and target in the file."""
MAX_STATE = 16 * GIB
"""Bytes of a checkpoint: some thousand ciphertexts in the clear."""
EVERY = 60.0
"""Seconds between two writes."""
Levels = list[Annotated[int, Field(ge=0, le=MAX_LEVEL)]]


class _State(Schema):
    """What a checkpoint says beside its arrays."""

    model_config = ConfigDict({**STRICT, "ser_json_inf_nan": "strings"})

    identity: str
    position: Count
    records: list[OpError]
    levels: dict[str, tuple[Levels, Levels]]


def comparison_identity(program: str, query: Packed, *names: str) -> str:
    """Names a comparison: which program, which inputs, which targets."""
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

    def load(self) -> tuple[int, list[OpError], LiveSlots] | None:
        """(next op, records of the ops before it, live values); None where there is no file.

        Raises:
            AtlasError: the file is damaged, or of another comparison.
        """
        if not self.path.exists():
            return None
        arrays = read_npz(self.path, MAX_STATE, what="the checkpoint")
        try:
            state = parse_json(str(arrays["facts"]), _State)
            live: LiveSlots = {}
            for name, sides in state.levels.items():
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
        if state.identity != self.identity:
            raise AtlasError(
                "the checkpoint is of another comparison",
                where=str(self.path),
                why="the program, the inputs or the targets differ",
                remedy="name another file, or delete this one",
            )
        return state.position, state.records, live

    def save_now_and_then(
        self, position: int, ops: Sequence[OpError], live: Callable[[], LiveSlots]
    ) -> None:
        """Write the state, unless that was done less than ``every`` seconds ago.

        Args:
            position: the op to continue with.
            ops: records of the ops before it.
            live: returns the live values; called only when they are written.
        """
        if time.monotonic() - self._written < self.every:
            return
        arrays: dict[str, np.ndarray] = {}
        levels: dict[str, tuple[list[int], list[int]]] = {}
        for name, sides in live().items():
            levels[name] = [], []
            for side, values, known in zip(SIDES, sides, levels[name], strict=True):
                known += [level for _, level in values]
                arrays |= {f"{side}:{name}:{n}": slots for n, (slots, _) in enumerate(values)}
        state = _State(
            identity=self.identity, position=position, records=list(ops), levels=levels
        ).model_dump_json()
        write_with(self.path, lambda draft: np.savez(draft, facts=state, **arrays))  # type: ignore[arg-type]
        self._written = time.monotonic()

    def remove(self) -> None:
        """The comparison has ended."""
        self.path.unlink(missing_ok=True)
