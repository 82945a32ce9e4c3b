"""Where a comparison of hours stands, in a file, so that it can be interrupted.

The file holds no keys and no ciphertexts but the slots of all live values in the clear, which a
comparison knows anyway: who goes on from it makes new keys and encrypts them anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.client import Packed
from atlasc.files import write_with
from atlasc.ir.errors import AtlasError

Slots = list[tuple[np.ndarray, int]]
"""Slots and level of the ciphertexts of one value."""
LiveSlots = dict[str, tuple[Slots, Slots]]
"""By value: of the reference, and of the target."""

SIDES = ("ours", "theirs")
"""Names of the two in the file."""
EVERY = 60.0
"""Seconds between two writes."""


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
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                facts = json.loads(str(archive["facts"]))
                live = {}
                for name, sides in facts["levels"].items():
                    ours, theirs = (
                        [(archive[f"{side}:{name}:{n}"], level) for n, level in enumerate(levels)]
                        for side, levels in zip(SIDES, sides, strict=True)
                    )
                    live[name] = ours, theirs
                identity, position = facts["identity"], int(facts["position"])
                records = list(facts["records"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AtlasError(
                "the checkpoint cannot be read",
                where=str(self.path),
                why=str(error),
                remedy="delete it, and the comparison starts from the beginning",
            ) from None
        if identity != self.identity:
            raise AtlasError(
                "the checkpoint is of another comparison",
                where=str(self.path),
                why="the program, the inputs or the backends differ",
                remedy="name another file, or delete this one",
            )
        return position, records, live

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
            "records": [asdict(op) for op in ops],
            "levels": levels,
        }
        write_with(self.path, lambda draft: np.savez(draft, facts=json.dumps(facts), **arrays))  # type: ignore[arg-type]
        self._written = time.monotonic()

    def remove(self) -> None:
        """The comparison has ended."""
        self.path.unlink(missing_ok=True)
