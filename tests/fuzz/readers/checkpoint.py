"""The checkpoint of a comparison: an .npz with a text of JSON in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from atlasc.compare.checkpoint import Checkpoint, OpError
from tests.fuzz.reader import Reader

IDENTITY = "0" * 64
RECORD = OpError("ckks.add", "y", "layer.0", 3, 3, 1e-9, 1e-6, 1e-9, 0.5, None)


def _seeds(folder: Path) -> list[Path]:
    slots = np.linspace(-1, 1, 16)
    live = {"x": [[(slots, 4)], [(slots, 4)]], "y": [[(slots, 3)] * 2, [(slots * 1j, 3)] * 2]}
    place = Checkpoint(folder / "state.npz", IDENTITY, every=-1)
    place.save_now_and_then(2, [RECORD, RECORD], lambda: live)
    return [place.path]


def _read(path: Path) -> object:
    state = Checkpoint(path, IDENTITY)
    live = state.live.items()
    levels = {n: [[level for _, level in side] for side in sides] for n, sides in live}
    return state.position, [asdict(op) for op in state.ops], levels


READER = Reader("checkpoint", _seeds, _read, 700)
