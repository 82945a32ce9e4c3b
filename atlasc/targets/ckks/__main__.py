"""Writes what the bootstraps of all sets need: ``python -m atlasc.targets.ckks``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from atlasc.program.bootstrap.sets import SETS, most_keys
from atlasc.targets import OWN, find_target
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.ckks.counted_needs import counted_needs
from atlasc.targets.ckks.parameters import STORED, CkksParameters, name_of


def stored_sets() -> Iterator[CkksParameters]:
    """The sets whose needs are stored: those of the targets here, in the ring that programs use. Of
    sets with fewer keys each target has its own.
    """
    for target in OWN:
        kind = find_target(target).parameters
        if issubclass(kind, CkksParameters):
            own = [name for name in SETS if most_keys(name) in (name, kind.named)]
            yield from map(kind.bootstrapped, own)


def facts(needs: BootstrapNeeds) -> dict[str, object]:
    """The needs as they are stored."""
    one, narrow = needs.key_switches_of_one, needs.key_switches_narrow
    return {
        "rotations": {str(amount): level for amount, level in needs.shared.items()},
        "key_levels": list(needs.key_levels),
        "memory": dict(needs.memory),
        "key_switches": [needs.key_switches, one, narrow],
        "landings": {kind: list(shares) for kind, shares in needs.landings.items()},
        "work": dict(needs.work),
    }


def main() -> None:
    """Write the file."""
    found = {name_of(one): facts(counted_needs(one)) for one in stored_sets()}
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
