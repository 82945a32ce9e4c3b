"""What a simulator of polynomials is: the interface that a search asks, and what all share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op, Value
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.simulation.segments import client_part, last_uses, segments

Approximations = Mapping[str, Approximation]
"""Approximation by the name of the op's result; an op that is not named is computed exactly."""


@dataclass(frozen=True)
class Simulation:
    """What came out.

    Attributes:
        outputs: arrays by name; empty after an explosion.
        exploded_at: the first op whose result exploded or was not finite, as "location: op", or
            None. Where a few inputs are evaluated first, it may be the first op for these.
        left: [N] which inputs leave the range of a polynomial, where the inputs are watched and
            nothing exploded; else None.
    """

    outputs: dict[str, np.ndarray]
    exploded_at: str | None = None
    left: np.ndarray | None = None

    @property
    def finite(self) -> bool:
        """Whether all values stayed in bounds."""
        return self.exploded_at is None


class Simulator(ABC):
    """Evaluates one module in the clear under many settings.

    Args:
        module: an nn module.
        dtype: float32 or float64.
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
        """Compute the client's part (embeddings) once; the result is what `run` takes."""

    @abstractmethod
    def run(
        self, inputs: Any, approximations: Approximations, *, layers: int | None = None
    ) -> Simulation:
        """Evaluate the module under a setting.

        Args:
            inputs: what `prepare` made.
            layers: stop after that many blocks; the outputs are then the values that later ops
                need, by name.
        """

    def run_all(
        self, inputs: Any, batch: Iterable[Approximations], *, layers: int | None = None
    ) -> Iterator[Simulation]:
        """`run` for one setting after the other."""
        return (self.run(inputs, chosen, layers=layers) for chosen in batch)

    def prefix(self, approximations: Approximations) -> list[int]:
        """A key for each segment, equal for settings that agree up to it.

        Sorted by their keys, settings that begin alike come together.
        """
        keys = [0]
        for segment in self.segments:
            chosen = approximations.get(segment.nonlinear or "")
            keys.append(self._keys.setdefault((keys[-1], chosen), len(self._keys) + 1))
        return keys[1:]

    def cleartext(self, inputs: Any, *, layers: int | None = None) -> dict[str, np.ndarray]:
        """The outputs with the exact functions: what the others are compared with."""
        return self.run(inputs, {}, layers=layers).outputs

    def server_inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[Value, np.ndarray]:
        """What the server gets, encrypted and public."""
        values: dict[Value, np.ndarray] = {}

        def keep(op: Op, result: np.ndarray) -> None:
            values[op.value] = result

        self._client.run(inputs, observe=keep)
        wanted = {operand for s in self.segments for op in s.ops for operand in op.operands}
        return {value: array for value, array in values.items() if value in wanted}
