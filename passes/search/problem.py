"""What a search is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.module import Module
from atlasc.ir.printer import print_module
from atlasc.passes.approximation.calibration import Calibration
from atlasc.passes.search.front import REFERENCE_ERROR, Cost
from atlasc.passes.search.objective import SNAPSHOT_MEMORY, Objective

EXPERT_LAYER = (5, 5, 5, 5, 7, 9, 9, 9)
"""The setting `is` of every layer; its cost is the reference cost of hypervolumes."""


@dataclass(frozen=True)
class SearchProblem:
    """A model, its ranges, and the inputs on which settings are compared.

    Attributes:
        module: an nn module.
        calibration: its ranges.
        arrays: search inputs by name, [N, ...] each.
        cost: what is minimised beside the error.
        dtype, threads, memory: see `Objective`.
        journal: a file in which evaluations are kept, so that an interrupted search goes on where
            it stopped; None keeps nothing.
    """

    module: Module
    calibration: Calibration
    arrays: Mapping[str, np.ndarray]
    cost: Cost = "depth"
    dtype: Any = np.float32
    threads: int | None = None
    memory: int = SNAPSHOT_MEMORY
    journal: Path | None = None

    def objective(self, layers: int | None = None) -> Objective:
        """The objective, on the whole model or on its first layers."""
        return Objective(
            self.module,
            self.calibration,
            self.arrays,
            dtype=self.dtype,
            threads=self.threads,
            memory=self.memory,
            layers=layers,
        )

    def reference(self, objective: Objective) -> tuple[float, float]:
        """Reference point of hypervolumes: the cost of `is`, and an error of 0.2."""
        from atlasc.passes.approximation.depth import depth_of

        expert = (EXPERT_LAYER,) * objective.space.layers
        depth = depth_of(self.module, objective.approximations(expert))
        levels = depth.levels or 0
        return float(depth.blocks if self.cost == "depth" else levels), REFERENCE_ERROR

    def digest(self) -> str:
        """SHA-256 (hex) of everything that an error depends on."""
        digest = hashlib.sha256(print_module(self.module).encode())
        ranges = self.calibration.to_dict()["ranges"]
        facts = [ranges, self.calibration.softmax_ranges, np.dtype(self.dtype).str]
        digest.update(json.dumps(facts).encode())
        for arrays in (self.module.symbols, self.arrays):
            for name in sorted(arrays):
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()
