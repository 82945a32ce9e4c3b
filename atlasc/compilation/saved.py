"""A front and its calibration as ``atlasc search -o`` wrote them, for another ``compile``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.calibration.calibrate import Calibration, read_calibration
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.search.front import Front

FRONT, CALIBRATION = "front.json", "calibration.json"


@dataclass(frozen=True)
class Saved:
    """A front with the ranges that its settings stand on.

    Attributes:
        path: of the front.
        front: what a search found.
        calibration: what it was searched with.
    """

    path: Path
    front: Front
    calibration: Calibration

    def require(self, module: Module) -> None:
        """Raise AtlasError unless the front is of this model."""
        if self.front.facts.get("model_digest") != model_digest(module):
            raise AtlasError(
                f"the front {self.path} belongs to another model",
                why="the weights, the shapes or the sequence length differ",
                remedy="give the model and the --sequence-length of the search, or search again",
            )


def load_saved(path: Path) -> Saved:
    """Read a front and the calibration beside it.

    Args:
        path: the folder that ``search -o`` wrote, or its front.json.

    Raises:
        AtlasError: one of them is missing or cannot be read, or they do not belong together.
    """
    path = path / FRONT if path.is_dir() else path
    beside = path.with_name(CALIBRATION)
    if not path.exists():
        raise AtlasError(f"the front {path} was not found", remedy="write one with atlasc search")
    if not beside.exists():
        raise AtlasError(
            f"there is no {CALIBRATION} beside {path}",
            why="settings mean nothing without the ranges that they were searched on",
            remedy="give the folder that atlasc search -o wrote",
        )
    front, calibration = Front.load(path), read_calibration(beside)
    if front.facts.get("calibration_digest") != calibration_digest(calibration):
        raise AtlasError(
            f"{path} and {beside} do not belong together",
            why="the front was searched on other ranges",
            remedy="give the folder that atlasc search -o wrote, or search again",
        )
    return Saved(path, front, calibration)


def calibration_digest(calibration: Calibration) -> str:
    """SHA-256 (hex) of all that a calibration says."""
    return hashlib.sha256(json.dumps(calibration.to_dict()).encode()).hexdigest()


def model_digest(module: Module) -> str:
    """SHA-256 (hex) of the weights, and of the nonlinear ops and their shapes but for the batch."""
    digest = hashlib.sha256()
    for op in nonlinear_ops(module):
        shape = op.operands[0].tensor.shape[1:]
        digest.update(f"{op.name} {op.value.name} {op.location} {shape}\n".encode())
    for name, array in sorted(module.arrays_used().items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
