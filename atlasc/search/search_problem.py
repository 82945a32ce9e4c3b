"""The problem of a search, and its objective: the cost and the error of a setting."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.calibration.calibrate import Calibration
from atlasc.calibration.room import with_room
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.storage import print_module
from atlasc.latency.model import LatencyModel, LatencyTarget
from atlasc.passes.approximation.approximate import (
    NonlinearPlace,
    approximation_for,
    layer_count,
    places,
    settings_approximations,
)
from atlasc.polynomials.description import Approximation
from atlasc.polynomials.parametrisation import PAPER, Parametrisation
from atlasc.search.error_model import Group, groups_of
from atlasc.search.points import Cost, Point, SearchSpace, Settings, expert, is_partial
from atlasc.simulation.agreement import Measure
from atlasc.simulation.output_errors import Reference
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.simulation.simulator import Simulation, Simulator
from atlasc.simulation.torch_simulator import TorchSimulator

AUTO = "auto"
REFERENCE_ERROR = 0.2
SNAPSHOT_MEMORY = 256 << 20


def silent(text: str) -> None:
    """A note that is dropped."""


@dataclass(frozen=True)
class RayWorkers:
    """Ray processes that evaluate settings: on the GPUs of a cluster if it has any, otherwise on
    its processors.

    Attributes:
        count: number of workers; None for one per GPU, or as many as the processors allow.
        threads: threads of each worker.
        address: address of a running cluster with this version of atlasc on every machine; None
            reads the environment variable RAY_ADDRESS, and without it uses this machine.
    """

    count: int | None = None
    threads: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if (self.count is not None and self.count < 1) or self.threads < 1:
            raise AtlasError("a search needs at least 1 worker with 1 thread")


@dataclass(frozen=True)
class SearchProblem:
    """A model, its ranges, the inputs on which settings are compared, and how they are evaluated.

    Attributes:
        module: an nn module; approximations of its ops are ignored.
        calibration: its ranges.
        arrays: search inputs by name, [N, ...] each; about 10 are enough (the paper's surrogate),
            more make the error more reliable and the search slower.
        cost: the cost to minimise beside the error.
        parametrisation: meaning of the integers of settings.
        dtype: float32 or float64; a GPU evaluates in float32.
        threads: threads among which the inputs are divided; None for the number of processors.
        memory: bytes for values that settings with equal first layers share.
        journal: file that keeps evaluations, so that an interrupted search can continue; None keeps
            nothing.
        workers: evaluate in other processes; None for this process alone.
        device: device that evaluates settings: "cpu", "cuda", or "auto" for a GPU if there is one.
        target: its parameters and costs predict seconds; needed if the cost is latency.
        note: called with a sentence for the user about the journal or the workers.
        shares: weight of each input in the error; None for equal weights.
        aim: greatest error of the setting that will be taken, if it is known: the strategy hybrid
            then concentrates its search near it. None for the whole front.
        sharing: number of consecutive blocks that share their settings; for very deep models.
        measure: what counts in an output; it decides what the error is (see `output_errors`).
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
    note: Callable[[str], None] = silent
    shares: tuple[float, ...] | None = None
    aim: float | None = None
    measure: Measure = "values"
    sharing: int = 1

    @property
    def groups(self) -> list[Group]:
        """The ops that share one choice."""
        return groups_of(self.module, self.parametrisation, self.sharing)

    @property
    def processors(self) -> int:
        """Number of threads that this process may use."""
        return self.threads or os.cpu_count() or 1

    def objective(self, layers: int | None = None) -> Objective:
        """The objective, for the whole model or for its first layers."""
        return Objective(self, layers)

    def reference(self, objective: Objective) -> tuple[float, float]:
        """Reference point of hypervolumes: the cost of the setting `is`, and an error of 0.2."""
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

    @cached_property
    def _weights_digest(self) -> str:
        return _digest(self.module.symbols)

    def identity(self) -> dict[str, Any]:
        """Everything that an evaluation depends on: JSON values, and SHA-256 (hex) of large
        objects.
        """
        ranges = json.dumps(self.calibration.to_dict()["ranges"])
        return {
            "model": hashlib.sha256(print_module(self.module).encode()).hexdigest(),
            "weights": self._weights_digest,
            "calibration": hashlib.sha256(ranges.encode()).hexdigest(),
            "search_inputs": _digest(self.arrays),
            "shares": None if self.shares is None else list(self.shares),
            "parametrisation": self.parametrisation.to_dict(),
            "dtype": np.dtype(self.dtype).name,
            "cost": self.cost,
            **({"sharing": self.sharing} if self.sharing > 1 else {}),
            **({"measure": self.measure} if self.measure == "tokens" else {}),
            **({} if self.latency_model is None else {"costs": self.latency_model.digest()}),
        }


def simulator(problem: SearchProblem) -> Simulator:
    """The simulator of a problem: NumPy on processors, or torch on a GPU.

    Raises:
        AtlasError: the device does not exist, or cannot evaluate in the problem's dtype.
    """
    device, single = problem.device, np.dtype(problem.dtype) == np.float32
    if device == "cpu" or (device == AUTO and not (single and _has_gpu())):
        return PolynomialSimulator(problem.module, problem.dtype, problem.threads, problem.memory)
    if device != AUTO and not single:
        raise AtlasError(f"{device} evaluates in float32 only", remedy="leave the device out")
    if device != AUTO and not _has_gpu():
        raise AtlasError(
            f"there is no device {device!r}",
            why="torch sees no GPU",
            remedy="leave the device out, or install torch with CUDA",
        )
    return TorchSimulator(problem.module, "cuda" if device == AUTO else device)


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


class Objective:
    """Evaluates settings of a problem in this process.

    The cost of a setting depends neither on earlier evaluations nor on the process.

    Args:
        problem: the search problem.
        layers: for the early-layer proxy, compare the values after this many blocks instead of
            the outputs. None for the whole model.
    """

    def __init__(self, problem: SearchProblem, layers: int | None = None) -> None:
        self._problem, self.layers, module = problem, layers, problem.module
        self._calibration = problem.calibration
        self.space = SearchSpace(layer_count(module), problem.parametrisation, problem.sharing)
        self.places = places(module)
        self._simulator = simulator(problem)
        self._inputs = self._simulator.prepare(problem.arrays)
        exact = self._simulator.cleartext(self._inputs, layers=layers)
        # The proxy compares hidden states, which are numbers.
        measure = problem.measure if layers is None else "values"
        self._reference = Reference.of(module, problem.arrays, exact, problem.shares, measure)
        self._chosen: dict[tuple[str, Any], Approximation | None] = {}

    @property
    def variation(self) -> float:
        """How the exact outputs vary from input to input; see ``agreement.variation``."""
        return self._reference.variation

    def with_room(self, room: Mapping[str, float]) -> Objective:
        """The same objective, on ranges that reach further (see `atlasc.calibration.room`)."""
        other = copy(self)
        other._calibration = with_room(self._problem.calibration, room)
        other._chosen = {
            key: one for key, one in self._chosen.items() if not room.get(key[0])
        }  # fmt: skip
        return other

    def evaluate(self, settings: Settings) -> Point:
        """Evaluate depth, levels and error of a setting in canonical form."""
        return next(self.points([settings]))

    def points(self, settings: Sequence[Settings]) -> Iterator[Point]:
        """Evaluate different settings, those with equal first layers one after the other."""
        ordered = sorted(settings, key=self.prefix)
        batch = map(self.approximations, ordered)
        simulations = self._simulator.run_all(self._inputs, batch, layers=self.layers)
        return map(self._point, ordered, simulations)

    def prefix(self, settings: Settings) -> list[int]:
        """A sort key that makes settings with equal first layers neighbours."""
        return self._simulator.prefix(self.approximations(settings))

    def _point(self, settings: Settings, simulated: Simulation) -> Point:
        depth, levels = self.costs(self.approximations(settings))
        if not simulated.finite:
            infinite = float("inf")
            return Point(depth, levels, infinite, settings, exploded_at=simulated.exploded_at)
        found = self._reference.errors(simulated.outputs)
        point = Point(depth, levels, found.error, settings, self.seconds(settings))
        if found.divergence is None:
            return point
        _, mean_error, divergence, top_1 = found
        return replace(point, mean_error=mean_error, divergence=divergence, top_1=top_1)

    def seconds(self, settings: Settings) -> float | None:
        """Predicted seconds; None without a latency model, or if ops are left exact."""
        latency = self._problem.latency_model
        if latency is None or is_partial(settings):
            return None
        return latency.seconds(self.approximations(settings))

    def cost(self, settings: Settings) -> float:
        """The cost that the problem minimises; infinite if it is not known."""
        if self._problem.cost == "latency":
            seconds = self.seconds(settings)
            return float("inf") if seconds is None else seconds
        depth, levels = self.costs(self.approximations(settings))
        return depth if self._problem.cost == "depth" else levels

    def costs(self, approximations: Mapping[str, Approximation]) -> tuple[int, int]:
        """Depth and levels of the blocks; exact ops cost nothing."""
        inside = {p.op.value.name: p.op.name for p in self.places if p.block is not None}
        chosen = [(inside[n], one) for n, one in approximations.items() if n in inside]
        depth = sum(one.depth_of(op) for op, one in chosen)
        return depth, sum(one.levels_of(op) for op, one in chosen)

    def approximations(
        self, settings: Settings, places: Sequence[NonlinearPlace] | None = None
    ) -> dict[str, Approximation]:
        """Result name -> approximation of a setting, at some places or at all; ops that are left
        exact have none.
        """
        wanted = self.places if places is None else places
        parametrisation = self._problem.parametrisation
        layers = {
            block: None if block is None else parametrisation.canonical(settings[block])
            for block in {place.block for place in wanted}
        }
        found = {p.op.value.name: self._approximation(p, layers[p.block]) for p in wanted}
        return {name: chosen for name, chosen in found.items() if chosen is not None}

    def _approximation(
        self, place: NonlinearPlace, setting: tuple[int, ...] | None
    ) -> Approximation | None:
        key = place.op.value.name, setting
        if key not in self._chosen:
            self._chosen[key] = approximation_for(
                place, setting, self._calibration, self._problem.parametrisation
            )
        return self._chosen[key]


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()
