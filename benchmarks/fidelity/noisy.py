"""The polynomials of a program in the clear, with the errors that its bootstraps would add.

The packed simulator adds the errors of every primitive and takes half a minute for a text of
MiniLM; this takes a tenth of a second, and errs as much: rescaling, key switches and encryption add
a thousandth of what bootstraps do (docs/precision.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from atlasc.analyses.bounds import bootstrapped
from atlasc.bundle.folder import Bundle
from atlasc.client.program import rows_of
from atlasc.ir.interpreter import Interpreter, Observer
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.simulation.poly_values import evaluated, fused
from atlasc.targets.noise import NoiseModel

MEASURED = 16.0
"""Magnitude up to which a bootstrap was seen to err as `NoiseModel.ckks` says; beyond it the result
may be anything. Programs are compiled for less."""


class NoisyProgram:
    """Evaluates the polynomials of a bundle on any number of inputs.

    Args:
        bundle: a compiled model.
        noise: of the primitives; None for that of the bundle's parameters.
        dtype: in which the polynomials are evaluated; float32 takes half of float64's memory.
        seed: of the errors.
    """

    def __init__(
        self,
        bundle: Bundle,
        noise: NoiseModel | None = None,
        dtype: Any = np.float64,
        seed: int = 0,
    ) -> None:
        self.client, self.dtype = bundle.client, dtype
        self.noise = noise or bundle.parameters.noise_model()
        self.bootstrapped = {op for op in bundle.poly.ops if "bound" in op.attributes}
        self._exact = Interpreter(bundle.poly, dtype, fused)
        self._noisy = Interpreter(bundle.poly, dtype, self._refreshed)
        self._random = np.random.default_rng(seed)

    def prepare(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the server gets of raw inputs ``[N, ...]``, in the clear."""
        return self.client.embedded(arrays)

    def run(self, prepared: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Outputs ``[N, ...]`` by name without errors, and the greatest magnitude ``[N]`` that any
        bootstrap would get of each input: 1 is what programs are compiled for.
        """
        reach = np.zeros(rows_of(prepared))

        def observe(op: Op, result: np.ndarray) -> None:
            if op in self.bootstrapped:
                largest = np.abs(result).reshape(len(result), -1).max(axis=1)
                np.maximum(reach, np.where(np.isnan(largest), np.inf, largest), out=reach)

        with np.errstate(all="ignore"):
            return self._exact.run(prepared, observe=observe), reach

    def run_with_errors(
        self, prepared: Mapping[str, np.ndarray], observe: Observer | None = None
    ) -> dict[str, np.ndarray]:
        """Outputs ``[N, ...]`` by name, with the errors of bootstraps; see ``Interpreter.run``."""
        with np.errstate(all="ignore"):
            return self._noisy.run(prepared, observe=observe)

    def interpreter(self, module: Module) -> Interpreter:
        """Evaluates another module of this program's values, such as the step of a decoder. A value
        gets the error of a bootstrap if it is bootstrapped in the program.
        """
        names = {op.value.name for op in self.bootstrapped}
        ops = [op for op in module.ops if op.result is not None]
        self.bootstrapped |= {op for op in ops if op.value.name in names}
        return Interpreter(module, self.dtype, self._refreshed)

    def _refreshed(self, op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
        """The result of an op, after its bootstrap if it is bootstrapped; None for an op that the
        interpreter evaluates.
        """
        if op not in self.bootstrapped:
            return fused(op, site, arrays)
        result, noise = evaluated(op, site, arrays), self.noise
        refreshed = bootstrapped(result, noise.bootstrap, noise.bootstrap_cubic, self._random)
        return np.where(np.abs(result) <= MEASURED, refreshed, np.nan)
