"""What a client would send if a server derived rotation keys from others: counted, not built.

    python -m benchmarks.engine.derived_keys BUNDLE...
    python -m benchmarks.engine.derived_keys --bert-base

Each digit of a key for the amount k is a ciphertext under the secret. A rotation by r makes it a
digit of the key for k + r (Lee, Lee, Kim and No, eprint 2022/532). The modulus of the rotated
ciphertext is that of the key, Q_l P, and further primes P' divide this rotation: primes above level
l, and further ones up to the limit of security. So only keys below the top can be derived. The
key of such a rotation is a *root*. Roots are chosen greedily, and a chain has at most `HOPS`
rotations, since each adds its error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atlasc.bundle.folder import load_bundle
from atlasc.calibration.calibrate import nominal_calibration
from atlasc.cli.output import print_table
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.runtime.interface import keys_of
from atlasc.targets import find_target
from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.moduli import digit_bits
from atlasc.targets.noise import ERROR_VARIANCE
from atlasc.targets.security import max_log_qp
from benchmarks.lowering import bert, in_packing

HOPS = 8
"""Most rotations between a key that is sent and one that is derived."""
MOST_ROOTS = 8


@dataclass(frozen=True)
class Root:
    """A key that keys are rotated with.

    Attributes:
        bytes: of its half that is sent.
        error: log2 of the standard deviation of the error that a rotation by it adds to a key,
            where a new key has log2(sqrt(10.5)) = 1.7.
    """

    bytes: float
    error: float


def root_of(parameters: CkksParameters, level: int) -> Root | None:
    """The smallest root that rotates keys of a level; None if the modulus has no room for one."""
    sizes, special = parameters.moduli.primes, parameters.moduli.special
    below, above = [*sizes[: level + 1], *special], [*sizes[level + 1 :]]
    degree = parameters.ring_degree
    spare = max_log_qp(degree) - sum(sizes) - sum(special)
    above += [spare] if spare > 0 else []
    found: list[Root] = []
    for count in range(1, len(above) + 1):
        most = sum(above[:count])
        if most < max(below):
            continue
        digits = digit_bits(below, most)
        sent = len(digits) * (sum(below) + most) * degree / 8
        switched = len(digits) * degree * ERROR_VARIANCE / 12 * 4.0 ** (max(digits) - most)
        rounded = (1 + degree * 2 / 3) / 12
        found.append(Root(sent, math.log2(switched + rounded) / 2))
    return min(found, key=lambda root: root.bytes, default=None)


def reached(
    known: Iterable[int], wanted: set[int], root: int, slots: int, hops: Mapping[int, int]
) -> dict[int, int]:
    """Wanted amounts that rotations by a root reach from known ones -> their number of hops."""
    found = dict(hops)
    queue = sorted(known, key=lambda amount: found[amount])
    while queue:
        amount = queue.pop(0)
        after = (amount + root) % slots
        if after in wanted and after not in found and found[amount] < HOPS:
            found[after] = found[amount] + 1
            queue.append(after)
    return {amount: count for amount, count in found.items() if amount not in hops}


def derived(
    rotations: Mapping[int, int], level: int, slots: int, cost: float, sizes: Mapping[int, float]
) -> tuple[list[int], dict[int, int]]:
    """Amounts of roots, and derived amount -> number of hops, chosen while a root saves bytes.

    Args:
        rotations: amount -> level of all keys.
        level: keys up to this one may be derived, from any other and from none (amount 0).
        slots: amounts count modulo this.
        cost: bytes of a root.
        sizes: bytes of each key.
    """
    wanted = {amount for amount, at in rotations.items() if at <= level}
    hops = {amount: 0 for amount in (0, *rotations) if amount not in wanted}
    roots: list[int] = []
    while len(roots) < MOST_ROOTS:
        steps = {(one - other) % slots for one in wanted - hops.keys() for other in hops}
        ways = [(step, reached(hops, wanted, step, slots, hops)) for step in sorted(steps)]
        best = max(ways, key=lambda way: sum(sizes[one] for one in way[1]), default=None)
        if best is None or sum(sizes[one] for one in best[1]) <= cost:
            break
        roots.append(best[0])
        hops |= best[1]
    return roots, {amount: count for amount, count in hops.items() if count}


def row(name: str, parameters: CkksParameters, plan: KeyPlan) -> list[str]:
    """One line of the table."""
    rotations = dict(plan.rotations)
    for amount, at in parameters.needs.shared.items():
        rotations[amount] = max(at, rotations.get(amount, at))
    sizes = {amount: parameters.key_bytes(at) / 2 for amount, at in rotations.items()}
    best: tuple[float, list[str]] | None = None
    for level in sorted(set(rotations.values())):
        root = root_of(parameters, level)
        if root is None:
            continue
        roots, found = derived(rotations, level, parameters.slots, root.bytes, sizes)
        saved = sum(sizes[one] for one in found) - len(roots) * root.bytes
        told = [f"{level}", f"{len(roots)}", f"{root.bytes / 1e6:.0f}", f"{len(found)}"]
        told += [f"{max(found.values(), default=0)}", f"{root.error:.1f}"]
        if best is None or saved > best[0]:
            best = saved, told
    sent, saved = sum(sizes.values()), best[0] if best else 0.0
    top = sum(size for one, size in sizes.items() if rotations[one] == max(rotations.values()))
    figures = [f"{len(rotations)}", f"{sent / 1e6:.0f}", f"{top / 1e6:.0f}"]
    return [name, *figures, *(best[1] if best else ["–"] * 6), f"{(sent - saved) / 1e6:.0f}"]


def bert_base() -> tuple[CkksParameters, KeyPlan]:
    """One layer of BERT-base's shape under nominal ranges: more layers need no more keys."""
    module = bert(1, 128)
    approximated = apply_recipe(module, "is", nominal_calibration(module))
    program, parameters = in_packing(approximated, LatencyTarget.of(find_target("cpu")), True)
    assert isinstance(parameters, CkksParameters)
    return parameters, key_plan(program)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundles", nargs="*", type=Path)
    parser.add_argument("--bert-base", action="store_true", help="its shape, 128 tokens")
    given = parser.parse_args(arguments)
    rows = [row("BERT-base's shape", *bert_base())] if given.bert_base else []
    for folder in given.bundles:
        bundle = load_bundle(folder, "client")
        assert isinstance(bundle.parameters, CkksParameters), "keys of our own engines alone"
        rows.append(row(folder.name, bundle.parameters, keys_of(bundle.interface)))
    names = ["rotation keys", "MB", "of the top", "up to level", "roots", "MB each", "derived"]
    print_table(["", *names, "hops", "error, log2", "MB with them"], rows)


if __name__ == "__main__":
    main()
