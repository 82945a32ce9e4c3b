"""An engine without data that finds the most memory that a program's ciphertexts take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias

from atlasc.program.counting_engine import Counted, CountingEngine
from atlasc.program.transform_work import TransformWork

Peaks: TypeAlias = Mapping[TransformWork | None, Mapping[int, int]]
"""The work of a ``transform``, or None outside of all -> the ciphertexts when they take most memory
meanwhile: level -> number."""


class _Live(Counted):
    """A ciphertext that tells its engine when it is freed."""

    __slots__ = ("engine",)
    engine: LiveEngine

    def __del__(self) -> None:
        self.engine.change(self.level, -2 if self.rescaled else -1)


class LiveEngine(CountingEngine):
    """Counts the live ciphertexts. A ciphertext at level l has l + 2 primes. A ciphertext that was
    a factor counts twice, because engines keep its rescaled form.

    Attributes:
        peaks: the ciphertexts when they had most primes together.
    """

    def __init__(self, *arguments: Any) -> None:
        self.live: Counter[int] = Counter()
        self.peaks: dict[TransformWork | None, Counter[int]] = {None: Counter()}
        self.primes, self._most = 0, dict[TransformWork | None, int]()
        super().__init__(*arguments)

    def _new(self, level: int) -> Counted:
        made = _Live(level)
        made.engine = self
        self.change(level, 1)
        return made

    def _rescale(self, factor: Counted) -> None:
        super()._rescale(factor)
        self.change(factor.level, 1)

    def _execute(self, work: TransformWork) -> None:
        super()._execute(work)
        self._note(work)

    def change(self, level: int, by: int) -> None:
        """Change the number of live ciphertexts at a level."""
        self.live[level] += by
        self.primes += by * (level + 2)
        self._note(None)

    def _note(self, work: TransformWork | None) -> None:
        if self.primes > self._most.get(work, 0):
            self._most[work], self.peaks[work] = self.primes, self.live.copy()
