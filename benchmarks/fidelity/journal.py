"""What a long benchmark has finished, kept in files: a run that was stopped goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from atlasc.files import write_private_arrays
from atlasc.ir.files import read_npz

LARGEST = 4 << 30
"""Bytes of a file."""


class Journal:
    """Arrays that follow from token ids, a file for each array of ids.

    Args:
        folder: of the files; None keeps nothing.
        what: what the arrays depend on beside the ids.
    """

    def __init__(self, folder: Path | None, what: str) -> None:
        self._folder, self._what = folder, what

    def once(
        self, ids: np.ndarray, compute: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Arrays by name: from the file, or computed now and kept."""
        if self._folder is None:
            return compute()
        name = hashlib.sha256(self._what.encode() + ids.tobytes()).hexdigest()[:32]
        place = self._folder / f"{name}.npz"
        if not place.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_private_arrays(place, compute())
        return read_npz(place, LARGEST, what="the journal")
