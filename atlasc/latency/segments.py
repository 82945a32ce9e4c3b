"""Cuts a packed program into segments, at places where a single value crosses.

The residual stream of a Transformer is the only value that crosses between attention and MLP, so a
segment has one or two nonlinear ops. The Chebyshev sums of a segment are left open: their degrees
are parameters.

The (min,+) table of a segment has the least seconds from the level before it to the level after it.
A segment is a small placement problem in which the levels at its ends stay open. The order in which
its inner levels are eliminated is found once. Equal parts are computed once for all segments and
settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.calibration.measure import nonlinear_ops
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.passes.lowering.packing.packer import copies_of
from atlasc.passes.lowering.placement.elimination import Factors
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode, Way
from atlasc.passes.lowering.placement.min_plus import INFINITY, Pieces, Table, plus
from atlasc.program.costs import (
    Polynomial,
    PrimitiveCosts,
    Profile,
    op_profiles,
    seconds_by_level,
)
from atlasc.program.engine import LEAST_COPIES

UNIT = 2.0**-24
"""Seconds per unit of a table."""
MEMORY = 512 << 20
"""Greatest bytes of kept tables. Beyond this, tables are dropped and computed again when needed;
the tables of one segment come on top."""
SegmentKey = tuple[str, str]
"""Location and kind of nonlinear ops: the part of their origin that packed ops remember."""


@dataclass(frozen=True)
class Piece:
    """An op of a segment.

    Attributes:
        operands: positions in the segment; 0 is the value that enters the segment.
        depth, profile: levels and primitives; for an open Chebyshev sum 0 and none.
        ciphertexts: number of ciphertexts of the result.
        narrow: whether the slots of the result repeat often.
        open: number of the open Chebyshev sum in the segment; None for any other op.
        copies: number of copies of the operand that may share the open sum.
    """

    operands: tuple[int, ...]
    depth: int = 0
    profile: Profile = frozenset()
    ciphertexts: int = 0
    open: int | None = None
    narrow: bool = False
    copies: int = 1


@dataclass(frozen=True, eq=False)
class ProgramSegment:
    """The ops between two crossing values, in topological order, from position 1 on.

    The last op makes the value that leaves the segment; no value leaves the ``last`` segment.
    Segments are compared by identity, so that tables are found fast.
    """

    pieces: tuple[Piece, ...]
    last: bool

    def depth(self, polynomials: Sequence[Polynomial]) -> int:
        """Levels on the longest path, with these polynomials for the open sums."""
        reached = [0]
        for piece in self.pieces:
            depth = piece.depth if piece.open is None else polynomials[piece.open].depth
            reached.append(max(reached[operand] for operand in piece.operands) + depth)
        return max(reached) if self.last else reached[-1]


class Cut(NamedTuple):
    """A segment, and the result names of its nonlinear ops in the nn module. The segment's open
    sums belong to these ops, in the same order.
    """

    names: tuple[str, ...]
    segment: ProgramSegment


class SegmentedProgram(NamedTuple):
    """Number of ciphertexts of a program's input, and the program's segments in order."""

    width: int
    cuts: tuple[Cut, ...]


def places_of(module: Module) -> dict[SegmentKey, list[str]]:
    """Place -> result names of the nonlinear ops of an nn module at this place."""
    found: dict[SegmentKey, list[str]] = {}
    for op in nonlinear_ops(module):
        found.setdefault((op.location, op.name.removeprefix("nn.")), []).append(op.value.name)
    return found


def cut(
    packed: Module, places: Mapping[SegmentKey, Sequence[str]], sums: Mapping[SegmentKey, int]
) -> SegmentedProgram:
    """The segments of a packed program without levels.

    Args:
        packed: the program.
        places: see `places_of`.
        sums: number of Chebyshev sums of the nonlinear ops at each place. If several tokens are
            selected early, a program has copies of a sum, one after the other.

    Raises:
        AtlasError: the program has several encrypted inputs, or copies of only some sums.
    """
    ops = [op for op in packed.ops if _is_encrypted(op)]
    if [op.name for op in ops].count("ckks.input") != 1 or ops[0].name != "ckks.input":
        raise AtlasError(
            "latencies are predicted for programs with one encrypted input",
            remedy="use --cost levels",
        )
    number = {op: position for position, op in enumerate(ops)}
    profile_of, cuts, start = op_profiles(packed), [], 0
    for end in _ends(ops, number):
        inside = ops[start + 1 : end + 1]
        keys = list(dict.fromkeys(place for op in inside if (place := _place(op)) is not None))
        opened = _opened(inside, keys, sums)
        pieces = []
        for op in inside:
            piece = Piece(tuple(number[v.op] - start for v in op.operands if v.op in number))
            if op in opened:
                piece = replace(piece, open=opened[op], copies=copies_of(op.value))
            elif op.result is not None:
                depth, profile = op.levels(packed.symbols), profile_of(op)
                piece = replace(piece, depth=depth, profile=profile)
            if op.result is not None:
                layout = op.value.ciphertext.layout
                narrow = LEAST_COPIES * layout.period <= layout.slots
                piece = replace(piece, ciphertexts=_width(op), narrow=narrow)
            pieces.append(piece)
        names = tuple(name for key in keys for name in places.get(key, ()))
        cuts.append(Cut(names, ProgramSegment(tuple(pieces), end == len(ops) - 1)))
        start = end
    return SegmentedProgram(_width(ops[0]), tuple(cuts))


def _opened(
    ops: Sequence[Op], keys: Sequence[SegmentKey], sums: Mapping[SegmentKey, int]
) -> dict[Op, int]:
    """The number of each open Chebyshev sum; copies of a sum have one number."""
    found: dict[Op, int] = {}
    first = 0
    for key in keys:
        own = [op for op in ops if op.name == "ckks.chebyshev" and _place(op) == key]
        copies, rest = divmod(len(own), max(1, sums[key]))
        if rest:
            raise AtlasError(
                "the latency of this program cannot be predicted",
                where=key[0],
                why=f"it has {len(own)} copies of {sums[key]} sums",
                remedy="use --cost levels",
            )
        found.update({op: first + place // max(1, copies) for place, op in enumerate(own)})
        first += sums[key]
    return found


def _ends(ops: Sequence[Op], number: Mapping[Op, int]) -> list[int]:
    """Positions of the values that leave the segments, and of the last op.

    A segment ends with the first crossing value after all products of the nonlinear ops in it.
    """
    crossing = _crossing(ops, number)
    last_product = {_place(op): position for op, position in number.items()}
    ends, until, nonlinear = [], 0, False
    for position, op in enumerate(ops[:-1]):
        place = _place(op)
        if place is not None:
            nonlinear, until = True, max(until, last_product[place])
        if nonlinear and until <= position and position in crossing:
            ends.append(position)
            nonlinear = False
    return [*ends, len(ops) - 1]


def _crossing(ops: Sequence[Op], number: Mapping[Op, int]) -> set[int]:
    """Positions of the values on every path from the input to an output: no later op reads an
    earlier value.
    """
    last_use = [len(ops) if op.result is None else 0 for op in ops]
    for op, position in number.items():
        for operand in op.operands:
            if operand.op in number:
                last_use[number[operand.op]] = position
    reached = accumulate(last_use, max, initial=0)
    pairs = enumerate(zip(ops, reached))
    return {at for at, (op, until) in pairs if until <= at and op.result is not None}


_PRODUCTS = ("ckks.chebyshev", "ckks.mul", "ckks.square")


def _is_encrypted(op: Op) -> bool:
    return op.name == "ckks.output" or (op.result is not None and op.result.encrypted)


def _place(op: Op) -> SegmentKey | None:
    """The place of a product or a polynomial of a nonlinear op; None for any other op.

    Linear ops do not count, because folding moves centring and shifts to other segments.
    """
    if op.name not in _PRODUCTS or "part" not in op.attributes:
        return None
    return op.location, op.attributes["part"]


def _width(op: Op) -> int:
    return op.value.ciphertext.ciphertexts


class Tables:
    """Tables of segments for one chain of levels and one cost table.

    Args:
        chain: levels, and the seconds of bootstraps by the level after them.
        costs: seconds of primitives.
    """

    def __init__(self, chain: LevelChain, costs: PrimitiveCosts) -> None:
        self._chain, self._pieces = chain, Pieces(chain, 1 / UNIT)
        self._orders: dict[ProgramSegment, list[int]] = {}
        self._known: dict[tuple[ProgramSegment, tuple[Polynomial, ...]], NDArray[np.float64]] = {}

        @cache
        def seconds(profile: Profile, depth: int, calls: int) -> tuple[float, ...]:
            each = seconds_by_level(profile, depth, costs, chain.max_level)
            return tuple(calls * one for one in each)

        @cache
        def shared(polynomial: Polynomial, copies: int, calls: int) -> Way | None:
            found = polynomial.shared(copies, costs, chain.max_level)
            return None if found is None else Way(found.depth, found.times(calls))

        self._seconds_by_level, self._shared = seconds, shared

    def start(self, ciphertexts: int) -> NDArray[np.float64]:
        """Seconds by level of the fresh input, [levels]."""
        return _seconds(self._pieces.edge(LevelNode("input", ciphertexts=ciphertexts))[-1])

    def of(
        self, segment: ProgramSegment, polynomials: tuple[Polynomial, ...]
    ) -> NDArray[np.float64]:
        """Seconds [level before, level after]; for the last segment [level before].

        The level before is that of the entering value after its bootstrap, if it has one. The
        bootstrap of the leaving value is included.

        Args:
            segment: a segment of the program.
            polynomials: the polynomials for the segment's open sums.
        """
        key = (segment, polynomials)
        if key not in self._known:
            if self._pieces.bytes > MEMORY:
                self._pieces = Pieces(self._chain, 1 / UNIT)
                self._known.clear()
            self._known[key] = _seconds(self._solve(segment, polynomials))
        return self._known[key]

    def _solve(self, segment: ProgramSegment, polynomials: tuple[Polynomial, ...]) -> Table:
        graph = LevelGraph([LevelNode("entering", refreshable=False)])
        for piece in segment.pieces:
            depth, profile, calls, other = piece.depth, piece.profile, 1, None
            if piece.open is not None:
                polynomial = polynomials[piece.open]
                depth, profile, calls = polynomial.depth, polynomial.profile(), piece.ciphertexts
                other = self._shared(polynomial, piece.copies, calls)
            cost = self._seconds_by_level(profile, depth, calls)
            node = LevelNode("piece", piece.operands, depth, cost, piece.ciphertexts)
            graph.add(replace(node, narrow=piece.narrow, other=other))
        if not segment.last:
            graph.add(LevelNode("leaving", (len(segment.pieces),), refreshable=False))
        factors = Factors(graph, self._pieces)
        before, after = factors.entry[0], factors.entry[-1]
        ends = [end for end in (before, None if segment.last else after) if end is not None]
        if segment not in self._orders:
            steps = factors.reduce(keep=ends)
            self._orders[segment] = [step.variable for step in steps]
        else:
            for variable in self._orders[segment]:
                factors.eliminate(variable)
        levels, total = self._pieces.levels, np.zeros(1, np.int64)
        for scope, number in factors.scopes.items():
            assert set(scope) <= set(ends), "levels so entangled that they cannot be eliminated"
            shape = [levels if end in scope else 1 for end in ends]
            total = plus(total, self._pieces.tables[number].reshape(shape))
        return np.broadcast_to(total, (levels,) * len(ends))


def _seconds(table: Table) -> NDArray[np.float64]:
    return np.where(table < INFINITY, table * UNIT, np.inf)
