"""The polynomial simulator: the server's part of an nn module with its polynomials, in the clear.

It shows the error that approximations make, without encryption and its noise. A search runs it
thousands of times, so it stops where values explode, and starts at the first nonlinear op whose
approximation differs from those that it has seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Value
from atlasc.passes.approximation.attribute import carried_by
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.simulation.blockwise import Blockwise
from atlasc.passes.simulation.parts import End, Part, PreparedInputs, divided
from atlasc.passes.simulation.poly_values import EXPLODED
from atlasc.passes.simulation.segments import end_after, largest_tensor
from atlasc.passes.simulation.simulator import Approximations, Simulation, Simulator

SMALLEST_PART = 1 << 17
"""Elements of its largest tensor from which a part is worth a thread."""


class PolynomialSimulator(Simulator):
    """Simulates one module under many settings.

    Args:
        module: an nn module; the approximations that its ops carry are the default.
        dtype: float32 or float64. A LayerNorm is computed as `expand` emits it, centring and then
            the norm of a mean square, which is stable in float32.
        threads: None for the number of processors. Inputs are divided among them; where there
            are fewer inputs than threads, or little work, matrix products and nonlinear ops are.
            One simulator at a time: the threads of BLAS belong to the whole process.
        memory: bytes of values kept for settings that begin alike (0: nothing is kept).
        limit: magnitude from which a value counts as exploded.

    Raises:
        AtlasError: the module encrypts nothing.
    """

    def __init__(
        self,
        module: Module,
        dtype: Any = np.float32,
        threads: int | None = None,
        memory: int = 0,
        limit: float = EXPLODED,
    ) -> None:
        super().__init__(module, dtype, limit)
        self.memory, self.threads = memory, threads or os.cpu_count() or 1
        self._blockwise: dict[int, Blockwise] = {}
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._blas = ThreadpoolController()
        self._symbols = self._constants()

    def _constants(self) -> dict[str, np.ndarray]:
        """The arrays behind symbols; weights lie as matrix products read them fastest."""
        linear = (op for s in self.segments for op in s.ops if op.name == "nn.linear")
        weights = {op.attributes["weight"].name for op in linear}
        return {
            # A bare configuration has one number for all elements of a weight: strides of zero.
            name: np.asfortranarray(array) if name in weights and any(array.strides) else array
            for name, array in Interpreter(self.module, self.dtype).symbols.items()
        }

    def prepare(self, inputs: Mapping[str, np.ndarray], watched: bool = False) -> PreparedInputs:
        """Compute the client's part (embeddings) once.

        Args:
            inputs: by name.
            watched: whether runs find which inputs leave the range of a polynomial.

        Raises:
            AtlasError: an input is missing or has the wrong shape.
        """
        values = self.server_inputs(inputs)
        count = len(next(iter(values.values())))
        threads = min(self.threads, count, count * largest_tensor(self.segments) // SMALLEST_PART)
        return divided(values, count, max(1, threads), self.memory, watched)

    def default_approximations(self) -> dict[str, Approximation]:
        """What the module's ops carry.

        Raises:
            AtlasError: an op carries none.
        """
        ops = nonlinear_ops(self.module)
        return {op.value.name: carried_by(op, self.module.symbols) for op in ops}

    def run(
        self,
        inputs: Mapping[str, np.ndarray] | PreparedInputs,
        approximations: Approximations | None = None,
        *,
        layers: int | None = None,
    ) -> Simulation:
        """Evaluate the module under a setting.

        Args:
            inputs: arrays by name, or what `prepare` made of them.
            approximations: by result name; None for those that the module carries.
            layers: stop after that many blocks; the outputs are then the values that later ops
                need, by name.
        """
        prepared = inputs if isinstance(inputs, PreparedInputs) else self.prepare(inputs)
        chosen = self.default_approximations() if approximations is None else approximations
        end = end_after(self.segments, layers)
        share = max(1, self.threads // prepared.threads)
        if share not in self._blockwise:
            self._blockwise[share] = Blockwise(self.dtype, share, self.limit)
        blockwise, stop = self._blockwise[share], End(end)
        work = partial(self._part, chosen=chosen, end=end, blockwise=blockwise, stop=stop)
        results: list[tuple[dict[str, np.ndarray], np.ndarray | None]] = []
        with self._blas.limit(limits=share, user_api="blas"):
            for parts in prepared.rounds:
                pool = None if prepared.threads == 1 else self._pool
                results += map(work, parts) if pool is None else pool.map(work, parts)
                if stop.segment < end:
                    op = self.segments[stop.segment].ops[0]
                    return Simulation({}, f"{op.location}: {op.name}")
        arrays = [outputs for outputs, _ in results]
        joined = {name: np.concatenate([part[name] for part in arrays]) for name in arrays[0]}
        left = [found for _, found in results if found is not None]
        return Simulation(joined, left=np.concatenate(left) if left else None)

    def _part(
        self, part: Part, chosen: Approximations, end: int, blockwise: Blockwise, stop: End
    ) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Evaluate the first `end` segments on some of the inputs, unless they explode.

        Returns:
            the outputs, and which inputs leave a range, where they are watched.
        """
        keys = self._keys(part, chosen, end)
        failed = next((index for index, key in enumerate(keys) if part.snapshots.fails(key)), end)
        if failed < end:
            stop.lower(failed)
            return {}, None
        start, values = self._resume(part, keys)
        outputs: dict[str, np.ndarray] = {}
        for index in range(start, end):
            if index >= stop.segment:
                break
            segment = self.segments[index]
            if index > start and segment.nonlinear is not None:
                live = {v: values[v] for v in segment.live}
                part.snapshots.store(keys[index - 1], live, keys[:index])
            left = part.watch(keys[index])
            if not self._segment(index, values, chosen, outputs, blockwise, stop, left):
                part.snapshots.store_failure(keys[index])
                stop.lower(index)
        part.snapshots.touch(keys)
        if stop.segment < end:
            return {}, None
        if end < len(self.segments):
            outputs = {value.name: values[value] for value in self.segments[end].live}
        return outputs, part.leaving(keys)

    def prefix(self, inputs: PreparedInputs, approximations: Approximations) -> list[int]:
        """See `Simulator`."""
        return self._keys(inputs.rounds[0][0], approximations, len(self.segments))

    def _keys(self, part: Part, chosen: Approximations, end: int) -> list[int]:
        """A key for the values after each segment."""
        names = (segment.nonlinear for segment in self.segments[:end])
        return part.snapshots.keys(name and chosen.get(name) for name in names)

    def _resume(self, part: Part, keys: Sequence[int]) -> tuple[int, dict[Value, np.ndarray]]:
        """The first segment to evaluate, and the values there."""
        values = dict(part.values)
        for index in range(len(keys) - 1, 0, -1):
            known = part.snapshots.load(keys[index - 1])
            if known is not None:
                values.update(known)
                return index, values
        return 0, values

    def _segment(
        self,
        index: int,
        values: dict[Value, np.ndarray],
        chosen: Approximations,
        outputs: dict[str, np.ndarray],
        blockwise: Blockwise,
        stop: End,
        left: np.ndarray | None,
    ) -> bool:
        """Evaluate a segment in place, unless it is not needed any more; False if it explodes."""
        for op in self.segments[index].ops:
            if index >= stop.segment:
                return True
            arrays = [values[operand] for operand in op.operands]
            if op.result is None:
                factor = self.dtype.type(op.attributes.get("factor", 1.0))
                outputs[op.attributes["name"]] = arrays[0] * factor
                continue
            site = op.site(self._symbols)
            approximation = chosen.get(op.result.name) if op.definition.nonlinear else None
            result: np.ndarray | None
            if approximation is not None:
                result = blockwise.evaluate(op, site, arrays, approximation, left)
            else:
                assert op.definition.evaluate is not None
                result = op.definition.evaluate(site, *arrays)
            if result is None:
                return False
            values[op.result] = result
            for operand in op.operands:
                if self._last_use[operand] is op:
                    values.pop(operand, None)
        return True
