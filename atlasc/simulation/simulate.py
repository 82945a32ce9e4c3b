"""The polynomial simulator: the server's part of an nn module with its polynomials, in the clear.

It shows the error of approximations without encryption and its noise. A search runs it thousands of
times, so it stops as soon as values explode, and starts at the first nonlinear op whose
approximation differs from all earlier settings.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from atlasc.calibration.measure import chunk_size, nonlinear_ops
from atlasc.ir.module import Module, Op, Value
from atlasc.polynomials.description import Approximation, carried_by
from atlasc.simulation.blockwise import Blockwise
from atlasc.simulation.poly_values import EXPLODED
from atlasc.simulation.simulator import (
    Approximations,
    Simulation,
    Simulator,
    end_after,
    largest_tensor,
)

AHEAD, FEWEST_FOR_AHEAD = 2, 8
"""The number of inputs that are evaluated first, and the least number of inputs for doing so."""
PARTS = 4
"""Number of parts of the inputs that may be evaluated at once. It must not depend on the machine:
the division of inputs decides on the last bits of errors, and so on the results of a search."""
WATCHED = 16
"""Watched inputs that are evaluated at once; few, so that long work reports progress often."""
SMALLEST_PART = 1 << 17
"""Elements of the largest tensor from which a part is worth its own thread."""


class Snapshots:
    """Recently used values by key, up to a number of bytes."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._values: OrderedDict[int, dict[Value, np.ndarray]] = OrderedDict()
        self._bytes = 0

    def load(self, key: int) -> dict[Value, np.ndarray] | None:
        """The values stored under a key, if they are still kept."""
        return self._values.get(key)

    def touch(self, path: Sequence[int]) -> None:
        """Mark the keys of a setting as used, the first keys last, because they are shared the
        most.
        """
        for key in reversed(path):
            if key in self._values:
                self._values.move_to_end(key)

    def store(self, key: int, values: dict[Value, np.ndarray], path: Sequence[int] = ()) -> None:
        """Keep values. If memory is short, the least recently used values are dropped, but not
        those of ``path``: if only these are left, the new values are not kept.
        """
        if key in self._values:
            return
        size = _bytes(values)
        for old in [k for k in self._values if k not in path]:
            if self._bytes + size <= self.memory:
                break
            self._bytes -= _bytes(self._values.pop(old))
        if self._bytes + size <= self.memory:
            self._values[key] = values
            self._bytes += size


def _bytes(values: dict[Value, np.ndarray]) -> int:
    return sum(array.nbytes for array in values.values())


@dataclass
class Part:
    """Some of the inputs, which one thread evaluates.

    Attributes:
        values: inputs of the server, encrypted and public.
        snapshots: values before nonlinear ops, by the keys of the settings that begin so.
        exploded: key -> [inputs] whether each exploded in the key's segment; None if the inputs
            are not watched.
        failed: keys of settings that explode in the segment of the key.
        stop: during a run, the first segment that need not be evaluated; lowered when values
            explode.
    """

    values: dict[Value, np.ndarray]
    snapshots: Snapshots
    exploded: dict[int, np.ndarray] | None = None
    failed: set[int] = field(default_factory=set)
    stop: int = 0

    @property
    def inputs(self) -> int:
        """Number of the inputs."""
        return len(next(iter(self.values.values())))


def divided(start: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """Bounds of ``pieces`` pieces of nearly equal size."""
    bounds = [start + (end - start) * piece // pieces for piece in range(pieces + 1)]
    return list(itertools.pairwise(bounds))


def _first_stop(parts: list[Part]) -> int:
    return min(part.stop for part in parts)


Rounds = list[list[Part]]
"""Parts that are evaluated at the same time, in the order of the inputs.

A few inputs are evaluated first: a setting that explodes nearly always does so on every input, and
the other inputs are then not evaluated. Watched inputs are all evaluated, some at a time.
"""


class PolynomialSimulator(Simulator):
    """Simulates one module under many settings.

    Args:
        module: an nn module; the approximations of its ops are the default.
        dtype: float32 or float64. A LayerNorm is computed as `expand` emits it: centring, then the
            norm by a mean square, which is stable in float32.
        threads: None for the number of processors. They take `PARTS` parts of the inputs; if there
            are more threads, nonlinear ops are divided among them. Each matrix product has one
            thread, so that results do not depend on the number of threads.
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

    def prepare(self, inputs: Mapping[str, np.ndarray], watched: bool = False) -> Rounds:
        """Compute the client's part (embeddings) once. For ``watched`` inputs, runs report which
        inputs explode.

        Raises:
            AtlasError: an input is missing or has the wrong shape.
        """
        values = self.server_inputs(inputs)
        count = len(next(iter(values.values())))
        most = min(PARTS, count * largest_tensor(self.segments) // SMALLEST_PART)

        def parts(start: int, end: int) -> list[Part]:
            pieces = max(1, min(most, end - start))
            return [
                Part(
                    {value: array[first:last] for value, array in values.items()},
                    Snapshots(self.memory * (last - first) // count),
                    {} if watched else None,
                )
                for first, last in divided(start, end, pieces)
            ]

        if watched:
            rounds = -(-count // min(chunk_size(self.module), WATCHED))
            return list(itertools.starmap(parts, divided(0, count, rounds)))
        if count < FEWEST_FOR_AHEAD:
            return [parts(0, count)]
        return [parts(0, AHEAD), parts(AHEAD, count)]

    def default_approximations(self) -> dict[str, Approximation]:
        """The approximations of the module's ops.

        Raises:
            AtlasError: an op has none.
        """
        ops = nonlinear_ops(self.module)
        return {op.value.name: carried_by(op) for op in ops}

    def run(
        self,
        inputs: Mapping[str, np.ndarray] | Rounds,
        approximations: Approximations | None = None,
        *,
        layers: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Simulation:
        """See `Simulator`.

        Args:
            inputs: arrays by name [N, ...], or the result of `prepare`.
            approximations: by result name; None for those of the module's ops.
            layers: stop after this many blocks; None for the whole model.
            progress: called with the number of inputs that are done.
        """
        rounds = inputs if isinstance(inputs, list) else self.prepare(inputs)
        chosen = self.default_approximations() if approximations is None else approximations
        end = end_after(self.segments, layers)
        keys, parts_at_once = self.prefix(chosen)[:end], max(map(len, rounds))
        share = max(1, self.threads // parts_at_once)
        if share not in self._blockwise:
            self._blockwise[share] = Blockwise(self.dtype, share, self.limit)
        outputs: list[dict[str, np.ndarray]] = []
        with self._blas.limit(limits=1):  # and OpenMP, see `blas_threads`
            for parts in rounds:
                for part in parts:
                    part.stop = end
                work = partial(self._part, chosen, keys, self._blockwise[share], parts)
                pool = None if parts_at_once == 1 else self._pool
                outputs += (map if pool is None else pool.map)(work, parts)
                if (stop := _first_stop(parts)) < end:
                    op = self.segments[stop].ops[0]
                    return Simulation({}, op.place)
                if progress is not None:
                    progress(sum(len(next(iter(part.values()))) for part in outputs))
        joined = {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0]}
        exploded = [
            np.any([part.exploded[key] for key in keys], axis=0)
            for parts in rounds
            for part in parts
            if part.exploded is not None
        ]
        return Simulation(joined, exploded=np.concatenate(exploded) if exploded else None)

    def _part(
        self,
        chosen: Approximations,
        keys: list[int],
        blockwise: Blockwise,
        parts: list[Part],
        part: Part,
    ) -> dict[str, np.ndarray]:
        """The outputs of some of the inputs after the first ``len(keys)`` segments.

        Results do not depend on which thread is faster: a part continues until it is past the first
        explosion of all parts that are evaluated at the same time.
        """
        end = len(keys)
        part.stop = next((i for i, key in enumerate(keys) if key in part.failed), end)
        if part.stop < end:
            return {}
        start, values, outputs = 0, dict(part.values), dict[str, np.ndarray]()
        for index in range(end - 1, 0, -1):
            known = part.snapshots.load(keys[index - 1])
            if known is not None:
                start, values = index, values | known
                break
        for index in range(start, end):
            segment, key = self.segments[index], keys[index]
            if index >= _first_stop(parts):
                break
            if index > start and segment.nonlinear is not None:
                live = {v: values[v] for v in segment.live}
                part.snapshots.store(keys[index - 1], live, keys[:index])
            exploded = None
            if part.exploded is not None:
                exploded = part.exploded.setdefault(key, np.zeros(part.inputs, dtype=np.bool_))
            for op in segment.ops:
                if index >= _first_stop(parts):
                    break
                arrays = [values[operand] for operand in op.operands]
                if op.result is None:
                    factor = self.dtype.type(op.attributes.get("factor", 1.0))
                    outputs[op.attributes["name"]] = arrays[0] * factor
                    continue
                result = self._result(op, arrays, chosen, blockwise, exploded)
                if result is None:
                    part.failed.add(key)
                    part.stop = index
                    break
                values[op.result] = result
                for operand in op.operands:
                    if self._last_use[operand] is op:
                        values.pop(operand, None)
        part.snapshots.touch(keys)
        if _first_stop(parts) == end < len(self.segments):
            return {value.name: values[value] for value in self.segments[end].live}
        return outputs

    def _result(
        self,
        op: Op,
        arrays: list[np.ndarray],
        chosen: Approximations,
        blockwise: Blockwise,
        exploded: np.ndarray | None,
    ) -> np.ndarray | None:
        """The result of an op; None if it explodes."""
        site = op.site(self.symbols)
        approximation = chosen.get(op.value.name) if op.definition.nonlinear else None
        if approximation is not None:
            return blockwise.evaluate(op, site, arrays, approximation, exploded)
        assert op.definition.evaluate is not None
        return op.definition.evaluate(site, *arrays)


def exact_answers(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    dtype: Any = np.float32,
    progress: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray]:
    """Output name -> cleartext answers of the model, ``[inputs, ...]``; `progress` is called with
    the number of inputs that are done.
    """
    simulator = PolynomialSimulator(module, dtype)
    inputs = simulator.prepare(arrays, watched=True)  # a few at a time: many take much memory
    return simulator.run(inputs, {}, progress=progress).outputs
