"""Running a program dry, and what it holds in memory: read off the program that way."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.passes.execution.counting_engine import Counted, CountingEngine
from atlasc.passes.execution.execute import Execution

Counting = TypeVar("Counting", bound=CountingEngine)


def dry_engine(module: Module, kind: type[Counting]) -> Counting:
    """A counting engine for a ckks module, with or without levels."""
    attributes = module.attributes
    levels = attributes.get("levels") or 0
    given = [op.attributes.get("level", 0) for op in module.ops if op.name == "ckks.input"]
    top = max(levels, *given, *module.depths().values())
    return kind(attributes["slots"], top, levels or None, attributes.get("bootstrap_batch", 1))


def dry_inputs(module: Module, engine: CountingEngine) -> dict[str, list[Counted]]:
    """Inputs of a dry run, by name."""
    return {
        op.attributes["name"]: [
            engine.encrypt(None, op.attributes.get("level", engine.max_level))
            for _ in range(Layout.parse(op.attributes["layout"]).ciphertexts)
        ]
        for op in module.ops
        if op.name == "ckks.input"
    }


def live_ciphertexts(module: Module) -> Counter[int]:
    """Ciphertexts by level at the moment that needs most memory, in a ckks module with levels.

    Inputs and outputs are held to the end, every other value until its last use, and inside an op
    what its kernel holds. One that was a factor counts twice: engines keep its rescaled form.
    """
    engine = dry_engine(module, LiveEngine)
    inputs = dry_inputs(module, engine)
    Execution(module, engine).run(inputs)
    return engine.at_peak


class _Live(Counted):
    """A ciphertext that tells its engine when it is let go."""

    __slots__ = ("engine", "forms")

    def __init__(self, level: int, engine: LiveEngine) -> None:
        self.engine, self.forms = engine, 1
        super().__init__(level)
        engine.enter(level)

    @property
    def rescaled(self) -> bool:
        """Whether it was a factor: the rescaled form is then kept beside the other."""
        return self.forms == 2

    @rescaled.setter
    def rescaled(self, value: bool) -> None:
        if value and self.forms == 1:
            self.forms = 2
            self.engine.enter(self.level)

    def __del__(self) -> None:
        for _ in range(self.forms):
            self.engine.leave(self.level)


class LiveEngine(CountingEngine):
    """Counts the ciphertexts that are alive; one at level l has l + 2 primes."""

    def __init__(self, *arguments: Any) -> None:
        self.live: Counter[int] = Counter()
        self.at_peak: Counter[int] = Counter()
        self.primes = self.peak = 0
        super().__init__(*arguments)

    def _new(self, level: int) -> Counted:
        return _Live(level, self)

    def enter(self, level: int) -> None:
        """A ciphertext is made."""
        self.live[level] += 1
        self.primes += level + 2
        if self.primes > self.peak:
            self.peak, self.at_peak = self.primes, self.live.copy()

    def leave(self, level: int) -> None:
        """A ciphertext is let go."""
        self.live[level] -= 1
        self.primes -= level + 2
