"""Lanes: runs of instructions that repeat, one for each ciphertext of an op, go in step.

A kernel computes one ciphertext after another: a GELU of twelve ciphertexts is the same polynomial
twelve times. In step, the first product of a few of them comes first, then the second of each, and
so on. An engine then relinearises or rotates them at once (``beside`` in
``runtime_cuda/src/replay.cpp``): its device gets fewer and larger launches. What a few lanes keep
for later is held at once, so it takes more memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.program.function import Instruction

WORK = ("mul", "square", "dot", "mul_plain", "dot_plain", "rotate")
"""Primitives of which an engine does a few at once; lanes without them stay as they are."""
LONGEST = 1 << 11
"""Greatest number of instructions of a lane."""
TRIED = 200
"""Repeats that are tried in a piece of code, those of the most instructions first."""


class Repeat(NamedTuple):
    """Lanes that follow one another: as many runs of ``length`` instructions, from ``first`` on."""

    first: int
    length: int
    lanes: int

    @property
    def end(self) -> int:
        """The instruction after the last lane."""
        return self.first + self.length * self.lanes


def in_step(code: Sequence[Instruction], lanes: int) -> tuple[Instruction, ...]:
    """The same instructions, in an order in which up to ``lanes`` lanes go in step."""
    if lanes < 2 or len(code) < 4:
        return tuple(code)
    reads = _reads(code)
    for repeat in islice(_repeats(code), TRIED):
        if _is_legal(reads, repeat, lanes):
            before, after = code[: repeat.first], code[repeat.end :]
            ordered = _zipped(code, repeat, lanes)
            return (*in_step(before, lanes), *ordered, *in_step(after, lanes))
    return tuple(code)


def _repeats(code: Sequence[Instruction]) -> Iterator[Repeat]:
    """Repeats of lanes with work: those of the most instructions first, and among them those with
    the shortest lanes.
    """
    kinds: dict[tuple[str, int, int], int] = {}
    alike = np.array([
        kinds.setdefault((one.primitive, len(one.operands), len(one.results)), len(kinds))
        for one in code
    ])  # fmt: skip
    work = np.cumsum([0, *(one.primitive in WORK for one in code)])
    found = []
    for length in range(2, min(len(code) // 2, LONGEST) + 1):
        equal = np.concatenate([[0], alike[:-length] == alike[length:], [0]])
        for start, end in np.flatnonzero(np.diff(equal)).reshape(-1, 2).tolist():
            lanes = (end - start) // length + 1
            if lanes > 1 and work[start + length] > work[start]:
                found.append((-length * lanes, length, start, end))
    for _, length, start, end in sorted(found):
        # The lanes may begin anywhere in the first of them.
        for first in range(start, min(start + length, end - length + 1)):
            yield Repeat(first, length, (end - first) // length + 1)


def _reads(code: Sequence[Instruction]) -> NDArray[np.int64]:
    """[reads, 2]: the place of an instruction, and of an earlier one whose result it reads."""
    written = {register: at for at, one in enumerate(code) for register in one.results}
    found = [
        (at, written[register])
        for at, one in enumerate(code)
        for register in one.operands
        if register in written
    ]
    return np.array(found, np.int64).reshape(-1, 2)


def _is_legal(reads: NDArray[np.int64], repeat: Repeat, lanes: int) -> bool:
    """Whether all that lanes in step read of each other is written before."""
    places = reads - repeat.first
    inside = ((places >= 0) & (places < repeat.end - repeat.first)).all(axis=1)
    lane, place = np.divmod(places[inside], repeat.length)
    together = lane[:, 0] // lanes == lane[:, 1] // lanes
    later = place[:, 1] > place[:, 0]
    return not np.any(together & (lane[:, 0] != lane[:, 1]) & later)


def _zipped(code: Sequence[Instruction], repeat: Repeat, lanes: int) -> Iterator[Instruction]:
    for group in range(0, repeat.lanes, lanes):
        some = range(group, min(group + lanes, repeat.lanes))
        for place in range(repeat.length):
            for lane in some:
                yield code[repeat.first + lane * repeat.length + place]
