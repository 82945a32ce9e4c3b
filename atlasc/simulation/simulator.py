"""The base class of simulators of polynomials, which a search uses, and their common parts.

The server's part of an nn module is divided into segments, at places where settings may start to
differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op, Value
from atlasc.polynomials.description import Approximation


@dataclass(frozen=True)
class Segment:
    """Ops from a nonlinear op, or from the start of a block, to the next such place.

    Attributes:
        layer: index of the block; None before the first block.
        ops: ops in order of execution; a nonlinear op is the first, if there is one.
        live: values of earlier segments that this or a later segment needs.
    """

    layer: int | None
    ops: tuple[Op, ...]
    live: frozenset[Value]

    @property
    def nonlinear(self) -> str | None:
        """Result name of the segment's nonlinear op, if the segment has one."""
        return self.ops[0].value.name if self.ops[0].definition.nonlinear else None


def _is_server(op: Op) -> bool:
    """Whether the server computes the op on encrypted data."""
    if op.name in ("nn.encrypt", "nn.input"):
        return False
    value = op.result if op.result is not None else op.operands[0]
    return value.tensor.side == "server"


def client_part(module: Module) -> Module:
    """The client's ops, the inputs and the encryptions, as a module without outputs."""
    ops = [op for op in module.ops if not _is_server(op)]
    return Module(module.name, "nn", ops, module.symbols)


def segments(module: Module) -> list[Segment]:
    """The server's ops, divided at the starts of blocks and before nonlinear ops."""
    groups: list[tuple[int | None, list[Op]]] = []
    for op in filter(_is_server, module.ops):
        layer = op.layer
        if not groups or (layer is not None and layer != groups[-1][0]):
            groups.append((layer, []))
        groups[-1][1].append(op)
    parts = [(layer, part) for layer, ops in groups for part in _before_nonlinear(ops) if part]
    found: list[Segment] = []
    made: set[Value] = set()
    for index, (layer, part) in enumerate(parts):
        used = {value for _, later in parts[index:] for op in later for value in op.operands}
        found.append(Segment(layer, tuple(part), frozenset(made & used)))
        made |= {op.result for op in part if op.result is not None}
    return found


def _before_nonlinear(ops: list[Op]) -> Iterator[list[Op]]:
    """The ops of a block, divided before the nonlinear ops.

    Ops that a nonlinear op does not need come after it: if its result explodes, they are never
    computed (the values of an attention are not needed for its softmax).
    """
    makers = {op.result: op for op in ops if op.result is not None}
    done: set[Op] = set()
    part: list[Op] = []

    def emit(op: Op) -> None:
        if op not in done:
            for operand in op.operands:
                if operand in makers:
                    emit(makers[operand])
            done.add(op)
            part.append(op)

    for op in ops:
        if op.definition.nonlinear:
            for operand in op.operands:
                if operand in makers:
                    emit(makers[operand])
            yield part
            part = []
            emit(op)
    for op in ops:
        emit(op)
    yield part


def end_after(parts: Sequence[Segment], layers: int | None) -> int:
    """Index of the segment after ``layers`` blocks; None for all segments."""
    before = [None, *(part.layer for part in parts)]
    blocks = [i for i, part in enumerate(parts) if part.layer not in (None, before[i])]
    return len(parts) if layers is None or layers >= len(blocks) else blocks[layers]


def last_uses(parts: Sequence[Segment]) -> dict[Value, Op]:
    """Value -> the op after which it is not needed any more."""
    return {operand: op for part in parts for op in part.ops for operand in op.operands}


def largest_tensor(parts: Sequence[Segment]) -> int:
    """Number of elements of the largest result, for one input."""
    results = (op.result for part in parts for op in part.ops if op.result is not None)
    return max((int(np.prod(value.tensor.shape[1:])) for value in results), default=1)


Approximations = Mapping[str, Approximation]
"""Result name of an op -> its approximation; ops that are not named are computed exactly."""


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation.

    Attributes:
        outputs: arrays by name; empty after an explosion.
        exploded_at: the first op whose result exploded or was not finite, as "location: op"; None
            if there is none. If a few inputs are evaluated first, it is the first op for these.
        exploded: [N] which inputs explode; None if the inputs are not watched. If they are, an
            explosion does not end the run: the outputs of exploding inputs are meaningless, those
            of the others are right.
    """

    outputs: dict[str, np.ndarray]
    exploded_at: str | None = None
    exploded: np.ndarray | None = None

    @property
    def finite(self) -> bool:
        """Whether all values stayed in bounds."""
        return self.exploded_at is None


class Simulator(ABC):
    """Evaluates one module in the clear under many settings.

    Args:
        limit: magnitude from which a value counts as exploded.

    Raises:
        AtlasError: the module encrypts nothing.
    """

    def __init__(self, module: Module, dtype: Any, limit: float) -> None:
        self.module, self.dtype, self.limit = module, np.dtype(dtype), limit
        self.segments = segments(module)
        if not self.segments:
            raise AtlasError("the module encrypts nothing", remedy="trace a Transformer")
        self.symbols = Interpreter(module, self.dtype).symbols
        self._client = Interpreter(client_part(module), self.dtype)
        self._last_use = last_uses(self.segments)
        self._keys: dict[tuple[int, Hashable], int] = {}

    @abstractmethod
    def prepare(self, inputs: Mapping[str, np.ndarray]) -> Any:
        """Compute the client's part (embeddings) once; `run` takes the result."""

    @abstractmethod
    def run(
        self, inputs: Any, approximations: Approximations, *, layers: int | None = None
    ) -> Simulation:
        """Evaluate the module under a setting.

        Args:
            inputs: the result of `prepare`.
            approximations: by result name.
            layers: stop after this many blocks; the outputs are then the values that later ops
                need, by name.
        """

    def run_all(
        self, inputs: Any, batch: Iterable[Approximations], *, layers: int | None = None
    ) -> Iterator[Simulation]:
        """`run` for each setting in turn."""
        return (self.run(inputs, chosen, layers=layers) for chosen in batch)

    def prefix(self, approximations: Approximations) -> list[int]:
        """A key for each segment, equal for settings that agree up to it.

        Sorted by their keys, settings that begin alike are neighbours.
        """
        keys = [0]
        for segment in self.segments:
            chosen = approximations.get(segment.nonlinear or "")
            keys.append(self._keys.setdefault((keys[-1], chosen), len(self._keys) + 1))
        return keys[1:]

    def cleartext(self, inputs: Any, *, layers: int | None = None) -> dict[str, np.ndarray]:
        """The outputs with the exact functions, as the reference for all settings."""
        return self.run(inputs, {}, layers=layers).outputs

    def server_inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[Value, np.ndarray]:
        """The inputs of the server, encrypted and public."""
        values: dict[Value, np.ndarray] = {}

        def keep(op: Op, result: np.ndarray) -> None:
            values[op.value] = result

        self._client.run(inputs, observe=keep)
        return {value: array for value, array in values.items() if value.tensor.side != "client"}
