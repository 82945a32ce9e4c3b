"""Chooses which rotation keys a server derives from others, so that a client does not send them.

A *root* rotates the key for an amount to that for a greater one (Lee, Lee, Kim and No, eprint
2022/532). It takes primes above the keys that it rotates, so no keys of the highest levels are
derived. Roots are chosen greedily: each is the one that saves the most bytes, as long as it saves
more than it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from atlasc.program.key_plan import HOPS, Derivation, KeyPlan, Root


def with_derived(
    plan: KeyPlan,
    roots: Mapping[int, Root],
    key_bytes: Sequence[int],
    slots: int,
    shared: Set[int] = frozenset(),
) -> KeyPlan:
    """The plan with the derivation that saves the most bytes; itself where none saves any.

    Levels of derived keys rise to those of the keys that are derived from them.

    Args:
        plan: without a derivation.
        roots: the root by the highest level of derived keys.
        key_bytes: bytes of a key by its level, from level 0 on.
        slots: amounts count modulo this.
        shared: amounts whose keys a bootstrap needs at higher levels; they are sent.
    """
    best, most = plan, 0
    for level in sorted(set(plan.rotations.values()) & roots.keys()):
        wanted = {
            amount: key_bytes[at]
            for amount, at in plan.rotations.items()
            if at <= level and amount not in shared
        }
        known = {0, *plan.rotations.keys() - wanted.keys()}
        chosen = _chosen(wanted, known, roots[level].bytes, slots)
        saved = sum(map(wanted.__getitem__, chosen)) - len({*chosen.values()}) * roots[level].bytes
        if saved > most:
            derivation = Derivation(level, roots[level].last, dict(sorted(chosen.items())))
            best, most = replace(plan, derivation=derivation), saved
    return replace(best, rotations=_reaching(best, slots))


def _chosen(wanted: Mapping[int, int], sent: Set[int], cost: int, slots: int) -> dict[int, int]:
    """Derived amount -> amount of its root, each behind the one that it is derived from.

    Args:
        wanted: bytes of the keys that may be derived.
        sent: amounts that keys may be derived from.
        cost: bytes of a root.
        slots: amounts count modulo this.
    """
    chosen: dict[int, int] = {}
    hops = dict.fromkeys(sent, 0)
    while True:
        missing = wanted.keys() - hops.keys()
        # What a root saves at most: the keys that lie a step behind any other one.
        bounds: Counter[int] = Counter()
        for amount in missing:
            for other in {*missing, *hops} - {amount}:
                bounds[(amount - other) % slots] += wanted[amount]
        best: tuple[int, int, dict[int, int]] = (cost, 0, {})
        for root, bound in sorted(bounds.items(), key=lambda entry: (-entry[1], entry[0])):
            if bound <= best[0]:
                break
            reached = _reached(root, missing, hops, slots)
            saved = sum(map(wanted.__getitem__, reached))
            if saved > best[0]:
                best = (saved, root, reached)
        _, root, reached = best
        if not reached:
            return chosen
        hops |= reached
        chosen |= dict.fromkeys(reached, root)


def _reached(root: int, missing: Set[int], hops: Mapping[int, int], slots: int) -> dict[int, int]:
    """The missing amounts that rotations by a root reach -> their numbers of hops."""
    found: dict[int, int] = {}
    starts = (amount for amount in missing if (amount - root) % slots in hops)
    for start in sorted(starts):
        at, count = start, hops[(start - root) % slots] + 1
        while at in missing and count <= HOPS and count < found.get(at, HOPS + 1):
            found[at] = count
            at, count = (at + root) % slots, count + 1
    return found


def _reaching(plan: KeyPlan, slots: int) -> dict[int, int]:
    """Amount -> level, so that no derived key is at a higher one than the key before it."""
    levels = dict(plan.rotations)
    for amount, root in plan.derivation.roots.items():
        at, level = (amount - root) % slots, levels[amount]
        while levels.get(at, level) < level:
            levels[at] = level
            at = (at - plan.derivation.roots.get(at, 0)) % slots
    return levels
