"""Counts on its circuits what a bootstrap needs, and writes what is stored of it.

python -m atlasc.targets.ckks.counted_needs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from atlasc.program.bootstrap.sets import SETS
from atlasc.program.counting_engine import Counted, Counts, counts_of
from atlasc.program.engine import LEAST_COPIES
from atlasc.program.function import Function
from atlasc.program.live_engine import LiveEngine
from atlasc.program.plaintexts import Slots
from atlasc.program.transform_work import SHORT_REPEATS, TRANSFORMS
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.costs import BOOTSTRAPS, relative_work
from atlasc.targets.moduli import special_for
from atlasc.targets.parameters import NARROWER, ParameterSet

TABLES = 4
"""Words for each coefficient in the tables of a prime: a root and its quotient, both ways."""


def counted_needs(parameters: ParameterSet) -> BootstrapNeeds:
    """The needs of a set with a bootstrap, counted on its circuits, which takes long."""
    one, two = parameters.circuit(parameters.slots)
    narrow, _ = parameters.circuit(max(parameters.slots >> NARROWER, 1))
    kinds = zip(BOOTSTRAPS, (two, one, narrow), strict=True)
    run = LiveEngine(*two.shape)
    run.play(two, [[Counted(level)] for [level] in two.levels])
    counts = counts_of(two)
    rotations = dict(sorted(counts.rotation_levels.items()))
    for power in range(parameters.log_ring_degree - 1):
        for amount, level in counts_of(parameters.circuit(1 << power)[1]).rotation_levels.items():
            rotations[amount] = max(rotations.get(amount, level), level)
    products = max(at for name, at in counts.primitives if name in ("mul", "square"))
    # A key at the lowest level switches to the sparse secret, those of one digit back.
    top = len(parameters.moduli.primes) - 1
    primes = parameters.residues(top) + parameters.special_primes
    diagonals = {
        level: number * _plaintext_bytes(parameters, level, period)
        for level, number, period in _diagonals(parameters, two)
    }
    lowest = diagonals[min(level for level in diagonals if level > parameters.max_level)]
    back = (1 + LEAST_COPIES) * parameters.key_bytes(top) // parameters.digits(top)
    memory = {
        "bootstrap_keys": back + sum(map(parameters.key_bytes, (0, *rotations.values()))),
        # Its plaintexts are the diagonals, which are kept.
        "bootstrap_work": max(
            parameters.live_bytes({work and replace(work, plaintexts=0.0): counts})
            for work, counts in run.peaks.items()
        ),
        "bootstrap_diagonals": sum(diagonals.values()),
        # Of lower levels that bootstraps end at: tables of transforms, and the diagonals of one
        # stage, whose scale is another one.
        "bootstrap_landings": (parameters.max_level - parameters.bootstrap_from)
        // parameters.landings
        * (TABLES * primes * parameters.ring_degree * 8 + lowest),
    }
    key_levels = (products, counts.conjugation_level)
    work = {kind: _work(parameters, counts_of(circuit)) for kind, circuit in kinds}
    return BootstrapNeeds(
        frozenset(rotations),
        rotations,
        key_levels,
        memory,
        counts.key_switches,
        counts_of(one).key_switches,
        counts_of(narrow).key_switches,
        {
            kind: tuple(round(one / levels[-1], 3) for one in levels)
            for kind, levels in work.items()
        },
        {kind: levels[-1] for kind, levels in work.items()},
    )


def _work(parameters: ParameterSet, counts: Counts) -> list[float]:
    """The work of a bootstrap by the level after it, in residues."""

    def work(landing: int) -> float:
        total = 0.0
        for (name, level), calls in counts.primitives.items():
            limbs, special, digits = _landed(parameters, landing, level)
            total += calls * relative_work(limbs, special, digits)[name]
        return total

    least, top = parameters.bootstrap_from, parameters.max_level
    return [work(max(at, least)) for at in range(top + 1)]


def _landed(parameters: ParameterSet, landing: int, level: int) -> tuple[int, int, int]:
    """Primes, special primes and digits at a level of a bootstrap that ends at level ``landing``:
    it has no primes of the levels between that one and the highest level after a bootstrap.
    """
    special = parameters.moduli.special
    most, left, digits, kept = sum(special), 0, list[int](), list[int]()
    gap = range(parameters.residues(landing), parameters.residues(parameters.max_level))
    sizes = list[int]()
    for at, bits in enumerate(parameters.moduli.primes[: level + 1]):
        count = parameters.residues(at) - len(sizes)
        sizes += [(bits + part) // count for part in range(count)]
    for place, bits in enumerate(sizes):
        if bits > left:
            left = most
            digits.append(0)
        left -= bits
        digits[-1] += place not in gap
        kept += [] if place in gap else [bits]
    count = sum(map(bool, digits))
    return len(kept), special_for(kept, special) if count == 1 else len(special), count


def _diagonals(parameters: ParameterSet, function: Function) -> Iterator[tuple[int, int, int]]:
    """For each linear transform of the bootstrap: its level, its number of diagonals, and the
    number of slots after which the diagonals repeat."""
    chosen = SETS[str(parameters.bootstrap)]
    cts, stc = chosen.cts_stages, chosen.stc_stages
    levels = [chosen.top - at for at in range(cts)]
    levels = [*range(stc, 0, -1), *levels]
    transforms = [one.plaintexts for one in function.code if one.primitive in TRANSFORMS]
    for level, plaintexts in zip(levels, transforms, strict=True):
        repeats = min(one.repeats for one in plaintexts if isinstance(one, Slots))
        yield level, len(plaintexts), parameters.slots // repeats


def _plaintext_bytes(parameters: ParameterSet, level: int, period: int) -> int:
    """Bytes of an encoded plaintext, special primes included, whose slots repeat after ``period``.

    If they repeat often, so do the encoded values, and one copy is kept.
    """
    primes = parameters.residues(level) + parameters.special_at(level)
    repeats = parameters.slots // period
    return primes * parameters.ring_degree * 8 // (repeats if repeats >= SHORT_REPEATS else 1)
