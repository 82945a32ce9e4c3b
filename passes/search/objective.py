"""What a setting costs and how far its output is from the cleartext model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from atlasc.ir.module import Module
from atlasc.passes.approximation.assign import (
    Place,
    approximation_for,
    layer_count,
    places,
)
from atlasc.passes.approximation.depth import op_depth
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.approximation.parametrisation import PAPER, Parametrisation
from atlasc.passes.approximation.setting import LayerSetting
from atlasc.passes.calibration.calibrate import Calibration
from atlasc.passes.calibration.measure import kept_tokens
from atlasc.passes.latency import LatencyModel
from atlasc.passes.search.evaluator import Evaluator
from atlasc.passes.search.front import Point
from atlasc.passes.search.space import SearchSpace, Settings, is_partial
from atlasc.passes.simulation.engines import AUTO, simulator
from atlasc.passes.simulation.simulate import Simulation
from atlasc.passes.simulation.torch_simulator import TorchSimulator

SNAPSHOT_MEMORY = 256 << 20


class Objective(Evaluator):
    """Evaluates settings of one module on a few inputs, in this process.

    Args:
        module: an nn module; approximations that it carries are not looked at.
        calibration: the ranges.
        arrays: the search inputs by name, [N, ...] each; about 10 are enough (the paper's
            surrogate), more make the error truer and the search slower.
        parametrisation: what the integers of settings stand for.
        dtype: float32 or float64.
        threads: among which the inputs are divided; None for the number of processors.
        memory: bytes for the values of settings that begin alike.
        layers: the early-layer proxy: compare the values after that many blocks instead of the
            outputs. None for the whole model.
        latency: predicts the seconds of points; None where nobody asks for them.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        shares: weight of each input in the error; None for equal ones.
    """

    def __init__(
        self,
        module: Module,
        calibration: Calibration,
        arrays: Mapping[str, np.ndarray],
        *,
        parametrisation: Parametrisation = PAPER,
        dtype: Any = np.float32,
        threads: int | None = None,
        memory: int = SNAPSHOT_MEMORY,
        layers: int | None = None,
        latency: LatencyModel | None = None,
        device: str = AUTO,
        shares: Sequence[float] | None = None,
    ) -> None:
        super().__init__(layers)
        self.module, self.calibration = module, calibration
        self.parametrisation, self.latency = parametrisation, latency
        self.space = SearchSpace(layer_count(module), parametrisation)
        self._places = places(module)
        self._simulator = simulator(module, dtype, threads, memory, device)
        self._inputs = self._simulator.prepare(arrays)
        self._reference = self._simulator.cleartext(self._inputs, layers=layers)
        self._weights = {
            name: error_weights(module, arrays, array, shares)
            for name, array in self._reference.items()
        }
        self._chosen: dict[tuple[str, Any], Approximation | None] = {}

    def evaluate(self, settings: Settings) -> Point:
        """Depth, levels and error of a setting in canonical form."""
        if settings not in self.known:
            self.known[settings] = self._evaluate(settings)
        return self.known[settings]

    def points(self, settings: Sequence[Settings]) -> Iterator[Point]:
        """Evaluate different settings; those that begin alike one after the other."""
        ordered = sorted(settings, key=self.prefix)
        if isinstance(self._simulator, TorchSimulator):
            batch = map(self.approximations, ordered)
            simulations = self._simulator.run_all(self._inputs, batch, layers=self.layers)
            return map(self._point, ordered, simulations)
        return map(self._evaluate, ordered)

    def prefix(self, settings: Settings) -> list[int]:
        """Sorts settings that begin alike next to each other."""
        return self._simulator.prefix(self._inputs, self.approximations(settings))

    def _evaluate(self, settings: Settings) -> Point:
        chosen = self.approximations(settings)
        return self._point(settings, self._simulator.run(self._inputs, chosen, layers=self.layers))

    def _point(self, settings: Settings, simulated: Simulation) -> Point:
        depth, levels = self.costs(self.approximations(settings))
        error = self._error(simulated.outputs) if simulated.finite else float("inf")
        seconds = self.seconds(settings) if simulated.finite else None
        return Point(
            depth, levels, error, settings, seconds=seconds, exploded_at=simulated.exploded_at
        )

    def seconds(self, settings: Settings) -> float | None:
        """Predicted seconds; None without a latency model, and where ops are left exact."""
        if self.latency is None or is_partial(settings):
            return None
        return self.latency.seconds(self.approximations(settings))

    def costs(self, approximations: Mapping[str, Approximation]) -> tuple[int, int]:
        """Depth and levels of the blocks; ops that are exact cost nothing."""
        ops = {place.op.value.name: place.op for place in self._places if place.block is not None}
        entries = [op_depth(ops[n], chosen) for n, chosen in approximations.items() if n in ops]
        return sum(e.depth for e in entries), sum(e.levels for e in entries)

    def approximations(self, settings: Settings) -> dict[str, Approximation]:
        """The approximations of a setting, by result name; an op that is left exact has none."""
        layers = [LayerSetting.of(integers, self.parametrisation) for integers in settings]
        found = {}
        for place in self._places:
            chosen = self.approximation(place, None if place.block is None else layers[place.block])
            if chosen is not None:
                found[place.op.value.name] = chosen
        return found

    def approximation(self, place: Place, setting: LayerSetting | None) -> Approximation | None:
        """The approximation of one op; None where the setting leaves it exact."""
        key = place.op.value.name, setting
        if key not in self._chosen:
            chosen = approximation_for(place, setting, self.calibration, self.parametrisation)
            self._chosen[key] = chosen
        return self._chosen[key]

    def _error(self, outputs: Mapping[str, np.ndarray]) -> float:
        return output_error(outputs, self._reference, self._weights)


def output_error(
    outputs: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray | None],
) -> float:
    """Mean absolute error of outputs; infinite where a value is not finite.

    Args:
        outputs, reference: arrays by name.
        weights: of values, broadcast to each output; see ``error_weights``.
    """
    total = weight = 0.0
    for name, expected in reference.items():
        difference = np.abs(outputs[name] - expected)
        kept = weights[name]
        total += float(np.sum(difference if kept is None else difference * kept, dtype=float))
        weight += expected.size if kept is None else float(kept.sum()) * expected.size / kept.size
    error = total / weight
    return error if np.isfinite(error) else float("inf")


def error_weights(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    output: np.ndarray,
    shares: Sequence[float] | None = None,
) -> np.ndarray | None:
    """Weights of the values of an output [B, ...]: those of kept tokens, and of its input; None for
    equal ones.

    Args:
        shares: weight of each input; None for equal ones.
    """
    kept = kept_tokens(module, arrays, output)
    if shares is None:
        return kept
    each = np.reshape(shares, (-1, *[1] * (output.ndim - 1))).astype(output.dtype)
    return each if kept is None else kept * each
