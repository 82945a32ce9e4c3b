"""The two programs of a layer behind one face: what they cost, and how they are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import numpy as np

from atlasc.client.program import client_program, decrypt_all, encrypt_all
from atlasc.compilation.lowering import lower_module
from atlasc.compilation.options import TargetOptions
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Op
from atlasc.program.costs import program_costs
from atlasc.program.counting_engine import CountingEngine, Counts
from atlasc.program.engine import Engine
from atlasc.program.execute import execute
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.targets import find_target
from atlasc.targets.costs import costs_of
from atlasc.targets.parameters import ParameterSet, require_set
from atlasc_comparisons.desilo.parameters import DesiloParameters
from benchmarks.peers.layer import Layer
from benchmarks.peers.naive import Naive

Before = Callable[[Op], None]
UNBOUNDED = 10_000
"""Levels of an engine on which nothing is ever bootstrapped."""


class Program(ABC):
    """A lowered layer.

    Attributes:
        name: for the table.
        layer: what it computes.
        parameters: the parameter set that it runs with.
        ops: how many ops ``run`` announces.
    """

    name: str
    layer: Layer
    parameters: ParameterSet
    ops: int

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """Calls of the primitives."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """Levels on the deepest path, bootstraps left aside."""

    @abstractmethod
    def run(self, engine: Engine[Any], before: Before) -> np.ndarray:
        """The layer's hidden state ``[tokens, features]`` for the layer's first input."""

    @cached_property
    def expected(self) -> np.ndarray:
        """The same from the polynomials in the clear."""
        (hidden,) = interpret(self.layer.unfolded(), self.layer.encrypted()).values()
        return hidden[0]

    @property
    @abstractmethod
    def plan(self) -> KeyPlan:
        """The evaluation keys that a run needs."""

    @cached_property
    def seconds(self) -> float:
        """Predicted time of a run."""
        return self.counts.seconds(costs_of(self.parameters))

    @property
    def memory(self) -> int:
        """Predicted bytes of keys and ciphertexts."""
        return sum(self.parameters.plan_memory(self.plan).values())


class OurProgram(Program):
    """What the compiler makes of a layer, bootstraps placed for the least predicted time."""

    def __init__(self, layer: Layer, name: str = "atlasc", target: str = "desilo") -> None:
        self.name, self.layer = name, layer
        options = TargetOptions(target=target)
        lowered = lower_module(layer.module, layer.inputs, options)
        self.program = lowered.program
        self.parameters = require_set(
            cast(ParameterSet, lowered.parameters), find_target(target).parameters
        )
        self.client = client_program(lowered.client, lowered.program)
        self.ops = len(self.program.ops)
        self._costs = program_costs(self.program)

    @cached_property
    def counts(self) -> Counts:
        """Of the lowered program."""
        return self._costs.total

    @property
    def levels(self) -> int:
        """Of the lowered program."""
        return self._costs.path.total

    @property
    def plan(self) -> KeyPlan:
        """Of the lowered program."""
        return key_plan(self.program)

    def run(self, engine: Engine[Any], before: Before) -> np.ndarray:
        """See ``Program``."""
        assert self.layer.inputs is not None
        query = self.client.query({n: array[:1] for n, array in self.layer.inputs.items()})
        encrypted = encrypt_all(engine, query)
        outputs = execute(engine, self.program, encrypted, query.public, before)
        slots = decrypt_all(engine, outputs)
        (hidden,) = self.client.answers(slots, 1).outputs.values()
        return hidden[0]


class NaiveProgram(Program):
    """Row packing, nothing folded, bootstraps where levels run out; see ``Naive``."""

    def __init__(self, layer: Layer, parameters: DesiloParameters, lazy: bool = False) -> None:
        self.name = "naive, lazy products" if lazy else "naive"
        self.layer, self.parameters, self.lazy = layer, parameters, lazy
        self.module = layer.unfolded()
        self.ops = len(self.module.ops)

    def _counted(self, levels: int, bootstrap_level: int | None) -> tuple[CountingEngine, int]:
        """The engine after a run without data, and the lowest level of its results."""
        engine = CountingEngine(self.parameters.slots, levels, bootstrap_level)
        (blocks,) = Naive(self.module, engine, lazy=self.lazy).run({}).values()
        return engine, min(engine.level(ct) for block in blocks for ct in block)

    @cached_property
    def counts(self) -> Counts:
        """Of a run without data."""
        parameters = self.parameters
        return self._counted(parameters.max_level, parameters.bootstrap_level)[0].total()

    @cached_property
    def levels(self) -> int:
        """Of a run without bootstraps."""
        return UNBOUNDED - self._counted(UNBOUNDED, None)[1]

    @cached_property
    def plan(self) -> KeyPlan:
        """A key for every amount of a run without data that a bootstrap key does not hold."""
        products = [level for kind, level in self.counts.primitives if kind in ("mul", "square")]
        rotations = dict(self.counts.rotation_levels)
        if self.parameters.bootstrap:
            rights = (1 << bit for bit in range(self.parameters.log_ring_degree))
            for right in rights:
                rotations.pop(self.parameters.slots - right, None)
        return KeyPlan(rotations, max(products, default=None), None)

    def run(self, engine: Engine[Any], before: Before) -> np.ndarray:
        """See ``Program``."""
        program = Naive(self.module, engine, before, self.lazy)
        (blocks,) = program.run(self.layer.encrypted()).values()
        (output,) = self.module.outputs
        return program.decrypt(blocks, output.operands[0].tensor.shape[-1])
