"""The results of a comparison so far, and the file that keeps them, so that it can be interrupted.

The file holds the slots of all live values in the clear, which a comparison knows anyway; it holds
neither keys nor ciphertexts. A comparison that continues from the file makes new keys and encrypts
the slots again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field

from atlasc.client.program import Packed
from atlasc.files import write_private_arrays
from atlasc.ir.bounds import MAX_LEVEL
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import GIB, STRICT, Amount, Count, Schema, parse_json, read_npz

MAX_STATE = 16 * GIB
"""Greatest size in bytes of a checkpoint: some thousand ciphertexts in the clear."""
EVERY = 60.0
"""Seconds between two writes of a checkpoint."""

SlotsAndLevels = list[tuple[np.ndarray, int]]
"""Slots and levels of the ciphertexts of one value."""
LiveSlots = dict[str, list[SlotsAndLevels]]
"""Value -> its slots and levels in the reference, and in the target."""
SIDES = ("ours", "theirs")
"""Names of the two sides in the file."""
AnyNumber = Annotated[float, Field(strict=False, allow_inf_nan=True)]
"""A wrong target may leave any number, also infinity, which JSON stores as a string."""
Levels = list[Annotated[int, Field(ge=0, le=MAX_LEVEL)]]
_ANY_NUMBERS = ConfigDict({**STRICT, "ser_json_inf_nan": "strings"})


@dataclass(frozen=True)
class OpError:
    """The errors of one op of the target.

    Attributes:
        op, value, location: which op, its result's name, and its module path.
        level: level of the result in the reference.
        target_level: level in the target; a difference is an error too.
        error: greatest error, over all slots, that the op alone added.
        bound: bound on ``error``.
        difference: greatest absolute difference from the reference, by all ops so far.
        largest: greatest absolute slot of the reference.
        tolerance: bound on ``difference``, if there is one.
        deviation: root mean square of the error over the slots.
        deviation_bound: bound on ``deviation``.
    """

    __pydantic_config__ = _ANY_NUMBERS

    op: str
    value: str
    location: str
    level: int
    target_level: int
    error: AnyNumber
    bound: AnyNumber
    difference: AnyNumber
    largest: AnyNumber
    tolerance: Amount | None = None
    deviation: AnyNumber = 0.0
    deviation_bound: AnyNumber = math.inf

    @property
    def parts(self) -> bool:
        """Whether the op is wrong, or the difference at the op exceeds the tolerance."""
        apart = self.tolerance is not None and not self.difference <= self.tolerance
        even = self.deviation <= self.deviation_bound
        within = self.error <= self.bound and even and self.level == self.target_level
        return apart or not within


class _State(Schema):
    """The members of a checkpoint beside its arrays, with levels of reference and target."""

    model_config = _ANY_NUMBERS

    identity: str
    position: Count
    records: list[OpError]
    levels: dict[str, Annotated[list[Levels], Field(min_length=2, max_length=2)]]


def comparison_identity(program: str, query: Packed, *names: str) -> str:
    """The identity of a comparison: of its program, inputs and targets."""
    state = hashlib.sha256(json.dumps([program, *names]).encode())
    for name, vectors in sorted(query.vectors.items()):
        state.update(name.encode() + np.ascontiguousarray(vectors).tobytes())
    return state.hexdigest()


class Checkpoint:
    """A file (``.npz``) with the state of one comparison.

    Attributes:
        position: position of the op to continue with; 0 if there is no file.
        ops: records of the earlier ops.
        live: values that are live at ``position``.

    Raises:
        AtlasError: the file is damaged, or belongs to another comparison.
    """

    def __init__(self, path: Path, identity: str, every: float = EVERY) -> None:
        self.path, self.identity, self.every = path, identity, every
        self.position, self.ops = 0, list[OpError]()
        self.live: LiveSlots = {}
        self._written = time.monotonic()
        if path.exists():
            self._load()

    def _load(self) -> None:
        remedy = "delete the file, and the comparison starts from the beginning"
        arrays = read_npz(self.path, MAX_STATE, what="the checkpoint", remedy=remedy)
        with explained("the checkpoint cannot be read", self.path, remedy):
            state = parse_json(str(arrays["facts"]), _State)
            self.live = {
                name: [
                    [(arrays[f"{side}:{name}:{n}"], level) for n, level in enumerate(levels)]
                    for side, levels in zip(SIDES, sides, strict=True)
                ]
                for name, sides in state.levels.items()
            }
        if state.identity != self.identity:
            raise AtlasError(
                "the checkpoint belongs to another comparison",
                where=str(self.path),
                why="the program, the inputs or the targets differ",
                remedy="name another file, or delete this one",
            )
        self.position, self.ops = state.position, state.records

    def save_now_and_then(
        self, position: int, ops: Sequence[OpError], live: Callable[[], LiveSlots]
    ) -> None:
        """Write the state, unless it was written less than ``every`` seconds ago; ``live`` is only
        called to write."""
        if time.monotonic() - self._written < self.every:
            return
        arrays: dict[str, Any] = {}
        levels: dict[str, list[list[int]]] = {}
        for name, both in live().items():
            levels[name] = [[level for _, level in values] for values in both]
            for side, values in zip(SIDES, both, strict=True):
                arrays |= {f"{side}:{name}:{n}": slots for n, (slots, _) in enumerate(values)}
        state = _State(
            identity=self.identity, position=position, records=list(ops), levels=levels
        ).model_dump_json()
        write_private_arrays(self.path, {"facts": np.asarray(state), **arrays})
        self._written = time.monotonic()
