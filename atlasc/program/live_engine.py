"""An engine without data that finds the most memory that a program's ciphertexts take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from atlasc.program.counting_engine import Counted, CountingEngine
from atlasc.program.function import Function
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


class _Played(NamedTuple):
    """What a function does to memory.

    Attributes:
        peaks: the ciphertexts at each peak, less those of the operands before.
        rescaled: whether each operand, and then each result, is rescaled at the end.
    """

    peaks: Peaks
    rescaled: tuple[bool, ...]


class LiveEngine(CountingEngine):
    """Counts the live ciphertexts. A ciphertext at level l has l + 2 primes. A ciphertext that was
    a factor counts twice, because engines keep its rescaled form.

    A function is played once for operands that were factors before, or not. Later calls change the
    memory as the first one did, and count no costs.

    Attributes:
        peaks: the ciphertexts when they had most primes together.
    """

    def __init__(self, *arguments: Any) -> None:
        self.live: Counter[int] = Counter()
        self.peaks: dict[TransformWork | None, Counter[int]] = {None: Counter()}
        self.primes, self._most = 0, dict[TransformWork | None, int]()
        self._shape, self._played = arguments, dict[Any, _Played]()
        super().__init__(*arguments)

    def play(
        self,
        function: Function,
        operands: Sequence[Sequence[Counted]],
        arrays: Sequence[Any] = (),
    ) -> list[Counted]:
        """Execute a function; see the class."""
        given, first = [one for operand in operands for one in operand], dict[int, int]()
        same = tuple(first.setdefault(id(one), place) for place, one in enumerate(given))
        state = function, same, tuple(one.rescaled for one in given)
        if state not in self._played:
            self._played[state] = self._observed(*state)
        played = self._played[state]
        for work, beside in played.peaks.items():
            self._note(work, beside)
        flags = iter(played.rescaled)
        for one in given:
            if next(flags) and not one.rescaled:
                self._rescale(one)
        made: dict[int, Counted] = dict(enumerate(given))
        for register, level in zip(function.results, function.result_levels, strict=True):
            rescaled = next(flags)
            if register not in made:
                made[register] = self._new(level)
                if rescaled:
                    self._rescale(made[register])
        return [made[register] for register in function.results]

    def _observed(
        self, function: Function, same: tuple[int, ...], rescaled: tuple[bool, ...]
    ) -> _Played:
        """Play a function on an engine of its own. Operand n is the operand ``same[n]``."""
        engine, given = LiveEngine(*self._shape), list[Counted]()
        levels = (level for operand in function.levels for level in operand)
        for place, level in enumerate(levels):
            given.append(given[same[place]] if same[place] < place else engine._new(level))
            if rescaled[place] and not given[place].rescaled:
                engine._rescale(given[place])
        before = engine.live.copy()
        engine.peaks, engine._most = {None: before.copy()}, {None: engine.primes}
        rest = iter(given)
        operands = [[next(rest) for _ in operand] for operand in function.levels]
        results = super(LiveEngine, engine).play(function, operands)
        for peak in engine.peaks.values():
            peak.subtract(before)
        return _Played(engine.peaks, tuple(one.rescaled for one in [*given, *results]))

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

    def _note(self, work: TransformWork | None, beside: Mapping[int, int] | None = None) -> None:
        """Note the live ciphertexts, and others beside them, if they are the most so far."""
        others = beside or {}
        primes = self.primes + sum(by * (level + 2) for level, by in others.items())
        if primes > self._most.get(work, 0):
            self._most[work], self.peaks[work] = primes, self.live.copy()
            self.peaks[work].update(others)
