"""The polynomial simulator: the server's part of an nn module with its polynomials, in the clear.

It shows the error that approximations make, without encryption and its noise. A search runs it
thousands of times, so it stops where values explode, and starts at the first block whose setting
differs from those that it has seen.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op, Value
from atlasc.passes.approximation.blockwise import Blockwise
from atlasc.passes.approximation.description import Approximation, from_attribute
from atlasc.passes.approximation.measure import nonlinear_ops
from atlasc.passes.approximation.segments import Segment, client_part, segments
from atlasc.passes.approximation.snapshots import Snapshots

EXPLODED = 1e6
"""A value beyond this is taken for an explosion: hidden states of real models stay far below."""
SMALLEST_PART = 1 << 17
"""Elements of its largest tensor from which a part is worth a thread."""

Approximations = Mapping[str, Approximation]
"""Approximation by the name of the op's result; an op that is not named is computed exactly."""


@dataclass(frozen=True)
class Simulation:
    """What came out.

    Attributes:
        outputs: arrays by name; empty after an explosion.
        exploded_at: the op whose result exploded or was not finite, as "location: op", or None.
    """

    outputs: dict[str, np.ndarray]
    exploded_at: str | None = None

    @property
    def finite(self) -> bool:
        """Whether all values stayed in bounds."""
        return self.exploded_at is None


@dataclass
class Part:
    """Some of the inputs, which one thread evaluates.

    Attributes:
        values: what the server gets, encrypted and public.
        snapshots: values at the starts of blocks, by the settings before them.
    """

    values: dict[Value, np.ndarray]
    snapshots: Snapshots


@dataclass
class Prepared:
    """Inputs whose client part has been computed; they are evaluated part by part at once."""

    parts: list[Part]


class PolynomialSimulator:
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
        self.module, self.dtype, self.memory = module, np.dtype(dtype), memory
        self._client = Interpreter(client_part(module), self.dtype)
        self._symbols = Interpreter(module, self.dtype).symbols
        self.threads = threads or os.cpu_count() or 1
        self._limit = limit
        self._blockwise: dict[int, Blockwise] = {}
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self._blas = ThreadpoolController()
        self.segments = segments(module)
        if not self.segments:
            raise AtlasError("the module encrypts nothing", remedy="trace a Transformer")
        self._last_use = {operand: op for op in module.ops for operand in op.operands}

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Prepared:
        """Compute the client's part (embeddings) once.

        Raises:
            AtlasError: an input is missing or has the wrong shape.
        """
        values: dict[Value, np.ndarray] = {}

        def keep(op: Op, result: np.ndarray) -> None:
            values[op.value] = result

        self._client.run(inputs, observe=keep)
        wanted = {operand for s in self.segments for op in s.ops for operand in op.operands}
        values = {value: array for value, array in values.items() if value in wanted}
        count = len(next(iter(values.values())))
        parts = self._part_count(count)
        bounds = [count * part // parts for part in range(parts + 1)]
        return Prepared(
            [
                Part(
                    {value: array[start:end] for value, array in values.items()},
                    Snapshots(self.memory // parts),
                )
                for start, end in itertools.pairwise(bounds)
            ]
        )

    def _part_count(self, inputs: int) -> int:
        largest = max(
            int(np.prod(op.value.type.shape[1:]))  # type: ignore[union-attr]
            for segment in self.segments
            for op in segment.ops
            if op.result is not None
        )
        return max(1, min(self.threads, inputs, inputs * largest // SMALLEST_PART))

    def default_approximations(self) -> dict[str, Approximation]:
        """What the module's ops carry.

        Raises:
            AtlasError: an op carries none.
        """
        found = {}
        for op in nonlinear_ops(self.module):
            if "approximation" not in op.attributes:
                raise AtlasError(
                    f"{op.name} has no approximation",
                    where=op.location,
                    remedy="apply a recipe or a search result first",
                )
            found[op.value.name] = from_attribute(op.name, op.attributes["approximation"])
        return found

    def run(
        self,
        inputs: Mapping[str, np.ndarray] | Prepared,
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
        prepared = inputs if isinstance(inputs, Prepared) else self.prepare(inputs)
        chosen = self.default_approximations() if approximations is None else approximations
        end = self._end(layers)
        share = max(1, self.threads // len(prepared.parts))
        if share not in self._blockwise:
            self._blockwise[share] = Blockwise(self.dtype, share, self._limit)
        work = partial(self._part, chosen=chosen, end=end, blockwise=self._blockwise[share])
        with self._blas.limit(limits=share, user_api="blas"):
            if self._pool is None or len(prepared.parts) == 1:
                results = [work(part) for part in prepared.parts]
            else:
                results = list(self._pool.map(work, prepared.parts))
        exploded = [result.exploded_at for result in results if not result.finite]
        if exploded:
            return Simulation({}, exploded[0])
        names = results[0].outputs
        return Simulation({n: np.concatenate([r.outputs[n] for r in results]) for n in names})

    def _part(
        self, part: Part, chosen: Approximations, end: int, blockwise: Blockwise
    ) -> Simulation:
        """Evaluate the first `end` segments on some of the inputs."""
        keys = part.snapshots.keys(
            tuple(chosen.get(name) for name in segment.nonlinear) for segment in self.segments[:end]
        )
        start, values, exploded = self._resume(part, keys)
        outputs: dict[str, np.ndarray] = {}
        for index in range(start, end):
            if exploded is not None:
                break
            if index > start:
                live = self.segments[index].live
                part.snapshots.store(keys[index - 1], {v: values[v] for v in live})
            exploded = self._segment(self.segments[index], values, chosen, outputs, blockwise)
            if exploded is not None:
                part.snapshots.store_failure(keys[index], exploded)
        if exploded is not None:
            return Simulation({}, exploded)
        if end < len(self.segments):
            outputs = {value.name: values[value] for value in self.segments[end].live}
        return Simulation(outputs)

    def cleartext(
        self, inputs: Mapping[str, np.ndarray] | Prepared, *, layers: int | None = None
    ) -> dict[str, np.ndarray]:
        """The same with the exact functions: what `run` is compared with."""
        return self.run(inputs, {}, layers=layers).outputs

    def _end(self, layers: int | None) -> int:
        """Index of the segment after that many blocks."""
        blocks = [i for i, segment in enumerate(self.segments) if segment.layer is not None]
        if layers is None or layers >= len(blocks):
            return len(self.segments)
        return blocks[layers]

    def _resume(
        self, part: Part, keys: Sequence[int]
    ) -> tuple[int, dict[Value, np.ndarray], str | None]:
        """The first segment to evaluate, the values there, and where equal settings exploded."""
        values = dict(part.values)
        for key in keys:
            exploded = part.snapshots.failure(key)
            if exploded is not None:
                return 0, values, exploded
        for index in range(len(keys) - 1, 0, -1):
            known = part.snapshots.load(keys[index - 1])
            if known is not None:
                values.update(known)
                return index, values, None
        return 0, values, None

    def _segment(
        self,
        segment: Segment,
        values: dict[Value, np.ndarray],
        chosen: Approximations,
        outputs: dict[str, np.ndarray],
        blockwise: Blockwise,
    ) -> str | None:
        """Evaluate a segment in place; the place of an explosion, if there is one."""
        for op in segment.ops:
            arrays = [values[operand] for operand in op.operands]
            if op.result is None:
                factor = self.dtype.type(op.attributes.get("factor", 1.0))
                outputs[op.attributes["name"]] = arrays[0] * factor
                continue
            site = op.site(self._symbols)
            approximation = chosen.get(op.result.name) if op.definition.nonlinear else None
            result: np.ndarray | None
            if approximation is not None:
                result = blockwise.evaluate(op, site, arrays, approximation)
            else:
                assert op.definition.evaluate is not None
                result = op.definition.evaluate(site, *arrays)
            if result is None:
                return f"{op.location}: {op.name}"
            values[op.result] = result
            for operand in op.operands:
                if self._last_use[operand] is op:
                    values.pop(operand, None)
        return None
