"""The polynomial simulator on torch: many settings at once, for a GPU.

It has the interface of `PolynomialSimulator` and agrees with it to rounding. Settings that begin
alike are evaluated once as far as they agree, and settings that explode leave the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.ops.nn import keep_mask
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.simulation.blockwise import algorithm_of
from atlasc.passes.simulation.poly_values import EXPLODED
from atlasc.passes.simulation.segments import end_after, largest_tensor
from atlasc.passes.simulation.simulator import Approximations, Simulation, Simulator
from atlasc.passes.simulation.torch_arithmetic import Constants, TorchArithmetic, exact

MEMORY = 4 << 30
"""Bytes for the tensors of a batch of settings."""
TENSORS = 24
"""Tensors as large as the largest, in float32, that one setting may need at once: a Chebyshev sum
holds its basis in float64."""


@dataclass
class Uploaded:
    """Inputs whose client part has been computed.

    Attributes:
        encrypted: what the server gets, [N, ...] tensors.
        public: masks, as NumPy arrays.
        count: N.
    """

    encrypted: dict[Value, Any]
    public: dict[Value, np.ndarray]
    count: int


@dataclass
class Batch:
    """Values under several settings; those that began alike so far share a row.

    Attributes:
        values: [rows · N, ...] tensors.
        rows: of each setting; -1 once it has exploded.
        exploded: where each setting exploded.
    """

    values: dict[Value, Any]
    rows: list[int]
    exploded: list[str | None]


class TorchSimulator(Simulator):
    """Simulates one module under many settings on a torch device, in float32.

    Args:
        module: an nn module; approximations that its ops carry are not looked at.
        device: "cpu" or "cuda".
        memory: bytes for a batch of settings.
        limit: magnitude from which a value counts as exploded.
    """

    def __init__(
        self, module: Module, device: str, memory: int = MEMORY, limit: float = EXPLODED
    ) -> None:
        super().__init__(module, np.float32, limit)
        self.device, self.memory = device, memory
        self._constants: dict[tuple[Op, str], Any] = {}

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Uploaded:
        """Compute the client's part once and bring it to the device."""
        values = self.server_inputs(inputs)
        public = {v: array for v, array in values.items() if v.tensor.side == "public"}
        encrypted = {v: self._tensor(values[v]) for v in values if v not in public}
        return Uploaded(encrypted, public, len(next(iter(values.values()))))

    def run(
        self, inputs: Uploaded, approximations: Approximations, *, layers: int | None = None
    ) -> Simulation:
        """See `Simulator`."""
        return next(self.run_all(inputs, [approximations], layers=layers))

    def run_all(
        self, inputs: Uploaded, batch: Iterable[Approximations], *, layers: int | None = None
    ) -> Iterator[Simulation]:
        """Evaluate the module under many settings, as many at once as memory allows.

        Args:
            inputs: what `prepare` made.
            batch: approximations by result name; an op that is not named is computed exactly.
            layers: stop after that many blocks (see `Simulator.run`).
        """
        import torch

        bytes_each = 4 * TENSORS * inputs.count * largest_tensor(self.segments)
        size = max(1, self.memory // bytes_each)
        remaining = iter(batch)
        while chosen := list(itertools.islice(remaining, size)):
            with torch.inference_mode():
                simulations = self._batch(inputs, chosen, end_after(self.segments, layers))
            yield from simulations

    def _batch(
        self, inputs: Uploaded, chosen: Sequence[Approximations], end: int
    ) -> list[Simulation]:
        batch = Batch(dict(inputs.encrypted), [0] * len(chosen), [None] * len(chosen))
        outputs: dict[str, Any] = {}
        for segment in self.segments[:end]:
            for op in segment.ops:
                if all(row < 0 for row in batch.rows):
                    return [Simulation({}, where) for where in batch.exploded]
                if op.result is None:
                    x = batch.values[op.operands[0]]
                    outputs[op.attributes["name"]] = x * op.attributes.get("factor", 1.0)
                    continue
                if op.definition.nonlinear:
                    self._nonlinear(op, inputs, batch, chosen)
                else:
                    arrays = [batch.values[operand] for operand in op.operands]
                    batch.values[op.result] = exact(op, arrays, self._constant(op))
                for operand in op.operands:
                    if self._last_use[operand] is op:
                        batch.values.pop(operand, None)
        if end < len(self.segments):
            live = self.segments[end].live
            outputs = {v.name: batch.values[v] for v in live if v in batch.values}
        found = {
            name: x.unflatten(0, (-1, inputs.count)).cpu().numpy() for name, x in outputs.items()
        }
        return [
            Simulation({} if where else {name: x[row] for name, x in found.items()}, where)
            for row, where in zip(batch.rows, batch.exploded, strict=True)
        ]

    def _nonlinear(
        self, op: Op, inputs: Uploaded, batch: Batch, chosen: Sequence[Approximations]
    ) -> None:
        """Evaluate a nonlinear op: a row for each beginning that is now different."""
        import torch

        name = op.value.name
        pairs: dict[tuple[int, Approximation | None], int] = {}
        for index, row in enumerate(batch.rows):
            if row >= 0:
                key = row, chosen[index].get(name)
                batch.rows[index] = pairs.setdefault(key, len(pairs))
        sources = [row for row, _ in pairs]
        if sources != list(range(len(next(iter(batch.values.values()))) // inputs.count)):
            chosen_rows = torch.tensor(sources, device=self.device)
            for value, x in batch.values.items():
                rows = x.unflatten(0, (-1, inputs.count))
                batch.values[value] = rows.index_select(0, chosen_rows).flatten(0, 1)
        x = batch.values[op.operands[0]].unflatten(0, (-1, inputs.count))
        y = torch.empty_like(x)
        alike: dict[Approximation | None, list[int]] = {}
        for (_, approximation), row in pairs.items():
            alike.setdefault(approximation, []).append(row)
        for approximation, rows in alike.items():
            y[rows] = self._evaluate(op, inputs, x[rows], approximation)
        flat = y.flatten(1)
        # A comparison with a value that is not a number is false.
        bounded = ((flat <= self.limit) & (flat >= -self.limit)).all(1).tolist()
        for index, row in enumerate(batch.rows):
            if row >= 0 and not bounded[row]:
                batch.rows[index] = -1
                batch.exploded[index] = f"{op.location}: {op.name}"
        batch.values[op.value] = y.flatten(0, 1)

    def _evaluate(
        self, op: Op, inputs: Uploaded, x: Any, approximation: Approximation | None
    ) -> Any:
        """The op on x [settings, N, ...]."""
        site, kept = op.site(self.symbols), None
        if op.name == "nn.softmax":
            mask = inputs.public[op.operands[1]] if len(op.operands) > 1 else None
            shape = np.broadcast_to(np.float32(0), tuple(x.shape[1:]))
            keep = keep_mask(site, shape, mask)
            kept = None if keep is None or keep.all() else self._tensor(keep)
        if approximation is None:
            return exact(op, [x], self._constant(op), kept)
        algorithm = algorithm_of(op, site, approximation)
        return TorchArithmetic(x, kept).run(algorithm, x)

    def _constant(self, op: Op) -> Constants:
        def constant(name: str) -> Any:
            key = op, name
            if key not in self._constants:
                array = op.site(self.symbols).constant(name, np.float32)
                self._constants[key] = self._tensor(array)
            return self._constants[key]

        return constant

    def _tensor(self, array: np.ndarray) -> Any:
        import torch

        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)
