"""What the kernels of the target ``cuda`` read and write, by primitive: an estimate.

It follows the kernels (docs/backend-phantom.md): a transform of a limb is two passes, each of which
reads and writes it; the first pass converts residues where it reads them, the last one divides. The
product with a key does the last pass of digits that nothing else reads, and the first one of the
division that follows. A sum of products and of numbers is one kernel, and four rotations of one
ciphertext read its digits once. On a layer of BERT-base it is within 8% of what the launches count,
in both packings (``tests/runtime_cuda/ckks/test_launches.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from atlasc.program.counting_engine import CostKind, Counts, counts_of
from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.parameters import NARROWER, ParameterSet

Traffic = Mapping[tuple[CostKind, int], float]
"""(primitive, level) -> bytes of one call."""
REPEATS = 128
"""How often the slots of a plaintext are taken to repeat in a ``transform_product``; its encoding
then hardly counts."""


def traffic_of(parameters: ParameterSet | None) -> Traffic | None:
    """The bytes of each primitive; None for parameters of another target."""
    known = isinstance(parameters, CkksParameters) and parameters.family == "cuda"
    return _traffic(parameters) if known else None


def bytes_moved(counts: Counts, traffic: Traffic) -> float:
    """Bytes that some counted work reads and writes."""
    return sum((calls * traffic[key] for key, calls in counts.primitives.items()), 0.0)


@cache
def _traffic(parameters: CkksParameters) -> Traffic:
    limb, table = 8 * parameters.ring_degree, dict[tuple[CostKind, int], float]()
    for level in range(len(parameters.moduli.primes)):
        limbs = _limbs(parameters, level)
        table |= {(name, level): limb * count for name, count in limbs.items()}
    if parameters.bootstrap:
        one, two = parameters.circuit(parameters.slots)
        narrow, _ = parameters.circuit(max(parameters.slots >> NARROWER, 1))
        circuits: dict[CostKind, Counts] = {
            "bootstrap": counts_of(two),
            "bootstrap_one": counts_of(one),
            "bootstrap_narrow": counts_of(narrow),
        }
        found = {name: bytes_moved(counts, table) for name, counts in circuits.items()}
        for level in range(parameters.max_level + 1):
            for name, moved in found.items():
                table[name, level] = moved * parameters.needs.landing(name, level)
    return table


def _limbs(parameters: CkksParameters, level: int) -> dict[CostKind, float]:
    """Limbs that each primitive reads and writes at a level."""
    own, special = parameters.residues(level), parameters.special_at(level)
    wide, digits = own + special, parameters.digits(level)
    key = parameters.switched_key_bytes(level) / (8 * parameters.ring_degree)
    # Back to coefficients; each digit is converted to all other primes, and has no limb of its own.
    hoist = 2 * own + 3 * digits * wide
    read = digits * wide + key  # by the product of digits and a key
    once = 4 * own + digits * wide + read  # where that product is the only one
    divide = 10 * special + 8 * own  # both parts, by the special primes
    begun = 6 * special + 8 * own  # where a product has begun it
    rescale = 10 + 8 * own
    # A product's division is also by its level's prime, which `rescale` counts: it has the rest.
    product = once + 2 * wide + 2 * own + 6 * special
    encode = 5 + 5 * own
    add = 2 * own  # most sums are written by a product's kernel, or wait for the next one
    return {
        "encrypt": 0.0,  # the client's
        "decrypt": 0.0,
        "add": add,
        "add_plain": encode + 4 * own,
        "add_scalar": 0.0,  # as a number that multiplies
        "negate": 4 * own,
        "times_i": 4 * own,
        "rescale": rescale,
        "mul": 7 * own + product,
        "square": 5 * own + product,
        # Terms of a sum are added where they are computed, but every sum is counted.
        "mul_lazy": 4 * own - add,
        "mul_plain": encode + 3 * own - add,
        "mul_scalar": 0.0,  # what a term of a sum reads, the sum counts; nearly all are terms
        "hoist": hoist,
        "rotate_hoisted": digits * wide / 4 + key + 2 * wide + own + divide,
        "rotate": once + 2 * wide + own + begun,
        "transform_baby": read + own,
        "transform_giant": 5 * special + 4 * own + once + 5 * wide,
        "transform_product": 6 * wide / REPEATS,
        "transform_dense": 6 + 6 * wide,
        "transform_result": divide,
    }
