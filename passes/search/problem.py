"""What a search is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.module import Module
from atlasc.ir.text.printer import print_module
from atlasc.passes.approximation.assign import layer_count, settings_approximations
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.approximation.parametrisation import PAPER, Parametrisation
from atlasc.passes.calibration.calibrate import Calibration
from atlasc.passes.latency import LatencyModel, LatencyTarget
from atlasc.passes.search.front import REFERENCE_ERROR, Cost
from atlasc.passes.search.journal import Note
from atlasc.passes.search.objective import SNAPSHOT_MEMORY, Objective
from atlasc.passes.search.ray_workers import RayWorkers
from atlasc.passes.search.space import Settings
from atlasc.passes.simulation.engines import AUTO

EXPERT_LAYER = (5, 5, 5, 5, 7, 9, 9, 9)
"""The setting `is` of every layer; its cost is the reference cost of hypervolumes."""


def expert_layer(parametrisation: Parametrisation = PAPER) -> tuple[int, ...]:
    """The integers that stand for the setting `is` of a layer: its degrees, or the next higher ones
    of the ladder, or the highest.
    """
    ladder = [parametrisation.degree(rung) for rung in range(1, max(parametrisation.upper) + 1)]
    rungs = [
        next((rung for rung, degree in enumerate(ladder, 1) if degree >= PAPER.degree(p)), high)
        for p, high in zip(EXPERT_LAYER, parametrisation.upper)
    ]
    others = parametrisation.lower[len(rungs) :]
    return (*map(min, rungs, parametrisation.upper), *others)


def expert(layers: int) -> Settings:
    """The settings `is`."""
    return (EXPERT_LAYER,) * layers


@dataclass(frozen=True)
class SearchProblem:
    """A model, its ranges, and the inputs on which settings are compared.

    Attributes:
        module: an nn module.
        calibration: its ranges.
        arrays: search inputs by name, [N, ...] each.
        cost: what is minimised beside the error.
        parametrisation: what the integers of settings stand for.
        dtype, threads, memory: see `Objective`.
        journal: a file in which evaluations are kept, so that an interrupted search goes on where
            it stopped; None keeps nothing.
        workers: what evaluates; None for this process alone.
        device: on which this process evaluates: "cpu", "cuda", or "auto" for a GPU if there is one.
        target: whose parameters and costs predict latencies; wanted where they are the cost.
        note: told in a sentence what a user should know of the journal and the workers.
        shares: weight of each input in the error; None for equal ones.
    """

    module: Module
    calibration: Calibration
    arrays: Mapping[str, np.ndarray]
    cost: Cost = "depth"
    parametrisation: Parametrisation = PAPER
    dtype: Any = np.float32
    threads: int | None = None
    memory: int = SNAPSHOT_MEMORY
    journal: Path | None = None
    workers: RayWorkers | None = None
    device: str = AUTO
    target: LatencyTarget | None = None
    note: Note = lambda text: None
    shares: tuple[float, ...] | None = None

    def objective(self, layers: int | None = None) -> Objective:
        """The objective, on the whole model or on its first layers."""
        return Objective(
            self.module,
            self.calibration,
            self.arrays,
            parametrisation=self.parametrisation,
            dtype=self.dtype,
            threads=self.threads,
            memory=self.memory,
            layers=layers,
            shares=self.shares,
            latency=self.latency_model,
            device=self.device,
        )

    def reference(self, objective: Objective) -> tuple[float, float]:
        """Reference point of hypervolumes: the cost of `is`, and an error of 0.2."""
        if self.cost == "latency":
            assert self.latency_model is not None
            return self.latency_model.seconds(self._expert_approximations()), REFERENCE_ERROR
        approximations = settings_approximations(self.module, expert(objective.space.layers), None)
        depth, levels = objective.costs(approximations)
        return float(depth if self.cost == "depth" else levels), REFERENCE_ERROR

    @cached_property
    def latency_model(self) -> LatencyModel | None:
        """Predicts the seconds of settings; None without a target."""
        if self.target is None:
            return None
        return LatencyModel(self.module, self.target, self._expert_approximations())

    def _expert_approximations(self) -> dict[str, Approximation]:
        settings = expert(layer_count(self.module))
        return settings_approximations(self.module, settings, self.calibration)

    def identity(self) -> dict[str, Any]:
        """Everything that an evaluation depends on: JSON values, SHA-256 (hex) of what is large."""
        ranges = json.dumps(self.calibration.to_dict()["ranges"])
        return {
            "model": hashlib.sha256(print_module(self.module).encode()).hexdigest(),
            "weights": _digest(self.module.symbols),
            "calibration": hashlib.sha256(ranges.encode()).hexdigest(),
            "search_inputs": _digest(self.arrays),
            "shares": None if self.shares is None else list(self.shares),
            "parametrisation": self.parametrisation.to_dict(),
            "dtype": np.dtype(self.dtype).name,
            "cost": self.cost,
            **({} if self.latency_model is None else {"costs": self.latency_model.digest()}),
        }


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()
