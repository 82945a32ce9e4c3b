"""The cost table of the target ``cuda``, scaled by counted work from what an H200 was measured at.

    python -m benchmarks.engine.scaled_costs

The table was measured with primes of up to 60 bits and transforms in 64-bit integers
(``h200_costs_60_bits.json``). The target now has primes below 2^50, whose transforms are
computed in double precision on such a GPU. So the fit of the old table says how each primitive
differs between the two parameter sets, and its limbs are transformed faster by what was measured
for a transform alone. Products of rotated ciphertexts take fewer instructions than when they were
measured. Plaintexts were made by the host, and the GPU waited; their kernels are counted instead
(`counted`). A measurement on a GPU replaces the table (docs/costs.md).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from atlasc.program.counting_engine import Counts, counts_of
from atlasc.targets.cost_table import Bootstrap, CostTable, Measured, load, shipped_place
from atlasc.targets.costs import KEY, FittedCosts
from atlasc.targets.cuda import CudaParameters

MEASURED = Path(__file__).with_name("h200_costs_60_bits.json")
INTEGERS, DOUBLES = 1.55e-6, 0.85e-6
"""Measured seconds of the transform of a limb of 2^16 numbers, of 480 limbs at once."""
INSTRUCTIONS = 5.9 / 25
"""Machine instructions of a product of rotated ciphertexts, of those when it was measured."""
BANDWIDTH = 4.3e12
"""Measured bytes a second of a large copy, reads and writes counted."""
SENT = 16e9
"""Bytes a second that the host sends to the device: a quarter of what PCIe 5.0 carries, and not
measured."""
LAUNCH = 5e-6
"""Seconds of a launch, or of an allocation, where the host does not work ahead. Not measured."""
SECTOR = 32
"""Bytes that a read of one number brings."""
TOGETHER = 8
"""Plaintexts that are encoded together."""
BOOTSTRAP_OF_TWO = 45.4e-3
"""Measured seconds of a bootstrap of two with `fifteen_levels_40`, transforms in integers."""
NOTE = (
    "scaled by counted work from a measurement with 60-bit primes, integer transforms and "
    "slower products of rotated ciphertexts; plaintexts made on the device are counted, not "
    "measured "
    "(python -m benchmarks.engine.scaled_costs)"
)
SETS = (
    CudaParameters(14, 6, 1), CudaParameters(15, 14, 2), CudaParameters(16, 28, 6),
    CudaParameters.bootstrapped(),
)  # fmt: skip


class AllSpecial(CudaParameters):
    """Key switches with all special primes."""

    def special_at(self, level: int) -> int:
        """All of them."""
        return self.special_primes


class WideParameters(AllSpecial):
    """What was measured: primes of up to 60 bits."""

    prime_bits = 60
    named = "fourteen_levels"


def transforms(parameters: CudaParameters, level: int) -> dict[str, float]:
    """Limbs that each primitive transforms at a level; see `atlasc.targets.ckks.traffic`.

    Primitives that encode a vector spend their time elsewhere.
    """
    own, special = parameters.residues(level), parameters.special_at(level)
    wide, digits = own + special, parameters.digits(level)
    hoist = digits * wide  # all back, and each digit to the primes that are not its own
    divide, rescale = 2 * (special + own), 2 * (1 + own)
    product = hoist + 2 * special
    return {
        "rescale": rescale, "mul": product, "square": product, "hoist": hoist,
        "rotate_hoisted": divide, "rotate": hoist + divide,
        "transform_giant": special + own + hoist, "transform_result": divide, KEY: digits * wide,
    }  # fmt: skip


def counted(parameters: CudaParameters, level: int, product: float) -> dict[str, float]:
    """Seconds of what has a plaintext, by what its kernels do, as if nothing overlapped.

    For each slot an element of an array is sent, in 32 bits, and read from a sector of memory of
    its own; the tables of places stay in the caches. Seven launches encode a few plaintexts, and
    each has memory of its own. What a transform of residues moves is part of its seconds.

    Args:
        product: seconds of a product of rotated ciphertexts, without the plaintext.
    """
    limb, own = 8 * parameters.ring_degree, parameters.residues(level)
    size = parameters.log_ring_degree
    ntt = DOUBLES * 2.0 ** (size - 16) * size / 16

    def made(limbs: int, together: int) -> float:
        moved = (5 + limbs) * limb + SECTOR * parameters.slots
        sent = 4 * parameters.slots / SENT
        return limbs * ntt + moved / BANDWIDTH + sent + (7 / together + 1) * LAUNCH

    def of(limbs: int) -> float:
        return limbs * limb / BANDWIDTH

    return {
        "mul_plain": made(own, TOGETHER) + of(3 * own) + LAUNCH / TOGETHER,
        "transform_dense": made(own + parameters.special_at(level), TOGETHER) + product,
        "add_plain": made(own, 1) + of(4 * own) + LAUNCH,
        "add_scalar": of(4 * own) + LAUNCH,
        "mul_scalar": of(4 * own) + LAUNCH,
    }


def of_counts(parameters: CudaParameters, counts: Counts) -> float:
    """Limbs that some counted work transforms."""
    return sum(
        calls * transforms(parameters, level).get(kind, 0.0)
        for (kind, level), calls in counts.primitives.items()
    )


def saved(limbs: float, parameters: CudaParameters, left: float | None = None) -> float:
    """Seconds by which so many limbs are transformed faster, if only some are ``left`` too."""
    size = parameters.log_ring_degree
    seconds = limbs * INTEGERS - (limbs if left is None else left) * DOUBLES
    return seconds * 2.0 ** (size - 16) * size / 16


def of_limbs(fit: FittedCosts, parameters: CudaParameters, primitive: str, level: int) -> float:
    """Seconds of a primitive that grow with its limbs; the others encode its plaintext."""
    top = parameters.max_level
    slope = (fit.cost(primitive, top) - fit.cost(primitive, 1)) / (top - 1)
    return slope * (parameters.residues(level) + parameters.special_at(level))


def scaled(table: CostTable) -> CostTable:
    """The table of the new parameter sets."""
    sets = []
    measured = (WideParameters.from_dict(one.parameters) for one in table.sets)
    olds = {(one.log_ring_degree, bool(one.bootstrap)): one for one in measured}
    for new in SETS:
        old = olds[new.log_ring_degree, bool(new.bootstrap)]
        before, fit, other = (FittedCosts(table, old) for _ in range(3))
        fit._measured = other._measured = {}  # not bent to what was measured
        other.parameters = new
        seconds: dict[str, dict[int, float]] = {}
        levels = sorted({1, new.max_level // 4, new.max_level // 2, new.max_level})
        for primitive in table.sets[0].seconds:
            for level in levels:
                at = min(level, old.max_level)
                more = other.cost(primitive, level) / fit.cost(primitive, at)
                full = before.cost(primitive, at) * more
                faster = full - saved(transforms(new, level).get(primitive, 0.0), new)
                if primitive == "transform_product":
                    faster -= (1 - INSTRUCTIONS) * of_limbs(other, new, primitive, level)
                # No less than half: conversions and memory take the rest.
                seconds.setdefault(primitive, {})[level] = max(faster, full / 2)
        for level in levels:
            of_plaintexts = counted(new, level, seconds["transform_product"][level])
            for primitive, found in of_plaintexts.items():
                seconds.setdefault(primitive, {})[level] = found
        sets.append(Measured(new.to_dict(), seconds))
    return replace(table, sets=tuple(sets), bootstrap=bootstrap(table), note=NOTE, path=None)


def bootstrap(table: CostTable) -> Bootstrap:
    """Seconds of bootstraps. All kinds take as much longer with integers as one of two did. They
    were measured with all special primes; of what there is less now, transforms are taken off.
    """
    old, new = table.bootstrap, CudaParameters.bootstrapped()
    measured = AllSpecial.bootstrapped()
    assert old is not None and old.one_seconds is not None and old.narrow_seconds is not None
    one, two = new.circuit(new.slots)
    narrow = new.circuit(new.slots // 32)[0]
    with_integers = BOOTSTRAP_OF_TWO / old.seconds
    kinds = ((old.seconds, two), (old.one_seconds, one), (old.narrow_seconds, narrow))
    found = [
        seconds * with_integers
        - saved(of_counts(measured, counts_of(circuit)), new, of_counts(new, counts_of(circuit)))
        for seconds, circuit in kinds
    ]
    return Bootstrap(found[0], old.key_seconds, False, found[1], found[2])


def main() -> None:
    """Write the table that atlasc ships."""
    table = scaled(load(MEASURED))
    shipped_place("cuda").write_text(table.text(), encoding="utf-8")
    print(table.bootstrap)


if __name__ == "__main__":
    main()
