"""What a setting costs and how far its output is from the cleartext model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atlasc.ir.module import Module
from atlasc.passes.approximation.assign import (
    LayerSetting,
    approximation_for,
    layer_count,
    places,
)
from atlasc.passes.approximation.calibration import Calibration
from atlasc.passes.approximation.depth import depth_of
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.approximation.simulate import PolynomialSimulator
from atlasc.passes.search.front import Point
from atlasc.passes.search.space import SearchSpace, Settings

SNAPSHOT_MEMORY = 256 << 20


class Objective:
    """Evaluates settings of one module on a few inputs; equal settings are evaluated once.

    Args:
        module: an nn module; approximations that it carries are not looked at.
        calibration: the ranges.
        arrays: the search inputs by name, [N, ...] each; about 10 are enough (the paper's
            surrogate), more make the error truer and the search slower.
        dtype: float32 or float64.
        threads: among which the inputs are divided; None for the number of processors.
        memory: bytes for the values of settings that begin alike.
        layers: the early-layer proxy: compare the values after that many blocks instead of the
            outputs. None for the whole model.

    Attributes:
        known: all evaluated points by settings.
    """

    def __init__(
        self,
        module: Module,
        calibration: Calibration,
        arrays: Mapping[str, np.ndarray],
        *,
        dtype: Any = np.float32,
        threads: int | None = None,
        memory: int = SNAPSHOT_MEMORY,
        layers: int | None = None,
    ) -> None:
        self.module, self.calibration, self.layers = module, calibration, layers
        self.space = SearchSpace(layer_count(module))
        self.known: dict[Settings, Point] = {}
        self._places = places(module)
        self._simulator = PolynomialSimulator(module, dtype, threads, memory)
        self._inputs = self._simulator.prepare(arrays)
        self._reference = self._simulator.cleartext(self._inputs, layers=layers)
        self._weights = {
            name: kept_tokens(module, arrays, array) for name, array in self._reference.items()
        }
        self._chosen: dict[tuple[str, Any], Approximation] = {}

    def evaluate(self, settings: Settings) -> Point:
        """Depth, levels and error of a setting in canonical form."""
        if settings not in self.known:
            self.known[settings] = self._evaluate(settings)
        return self.known[settings]

    def evaluate_all(self, batch: Sequence[Settings]) -> list[Point]:
        """Points of many settings; those that begin alike are evaluated one after the other."""
        missing = sorted(set(batch) - set(self.known))
        for settings in missing:
            self.known[settings] = self._evaluate(settings)
        return [self.known[settings] for settings in batch]

    def _evaluate(self, settings: Settings) -> Point:
        approximations = self.approximations(settings)
        depth = depth_of(self.module, approximations)
        assert depth.levels is not None
        simulated = self._simulator.run(self._inputs, approximations, layers=self.layers)
        error = self._error(simulated.outputs) if simulated.finite else float("inf")
        return Point(depth.blocks, depth.levels, error, settings)

    def approximations(self, settings: Settings) -> dict[str, Approximation]:
        """The approximations of a setting, by result name."""
        layers = [LayerSetting.of(integers) for integers in settings]
        found = {}
        for place in self._places:
            setting = None if place.block is None else layers[place.block]
            name = place.op.value.name
            if (name, setting) not in self._chosen:
                chosen = approximation_for(place, setting, self.calibration)
                self._chosen[name, setting] = chosen
            found[name] = self._chosen[name, setting]
        return found

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
        weights: what ``kept_tokens`` gave for each.
    """
    total = weight = 0.0
    for name, expected in reference.items():
        difference = np.abs(outputs[name] - expected)
        kept = weights[name]
        total += float(np.sum(difference if kept is None else difference * kept, dtype=float))
        weight += expected.size if kept is None else float(kept.sum()) * expected[0, 0].size
    error = total / weight
    return error if np.isfinite(error) else float("inf")


def kept_tokens(
    module: Module, arrays: Mapping[str, np.ndarray], output: np.ndarray
) -> np.ndarray | None:
    """1 for the tokens of an output [B, n, ...] that a mask keeps: nobody reads the padding."""
    for op in module.inputs:
        mask = arrays.get(op.attributes["name"])
        if op.attributes["side"] != "public" or mask is None or output.ndim <= 2:
            continue
        if mask.shape == output.shape[:2]:
            return mask.reshape(*mask.shape, *[1] * (output.ndim - 2)).astype(output.dtype)
    return None
