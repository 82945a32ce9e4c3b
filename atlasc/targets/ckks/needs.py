"""What the bootstrap of a parameter set needs: a constant of the set, which ``needs.json`` has.

Every process of a role asks for it, and counting it on the circuits takes a second.
``python -m atlasc.targets.ckks`` writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from atlasc.targets.parameters import BootstrapNeeds, ParameterSet

STORED = Path(__file__).with_name("needs.json")


@cache
def needs_of(parameters: ParameterSet) -> BootstrapNeeds:
    """The needs of a set with a bootstrap; counted where they are not stored."""
    if found := _stored().get(name_of(parameters)):
        rotations = {int(amount): level for amount, level in found["rotations"].items()}
        return BootstrapNeeds(
            frozenset(rotations), rotations, tuple(found["key_levels"]), found["memory"],
            *found["key_switches"],
        )  # fmt: skip
    from atlasc.targets.ckks.counted_needs import counted_needs

    return counted_needs(parameters)


def name_of(parameters: ParameterSet) -> str:
    """The name of a set in the file: whatever its needs depend on."""
    kind = type(parameters).__name__
    return f"{kind} {parameters.bootstrap} {parameters.log_ring_degree}"


@cache
def _stored() -> dict[str, dict[str, Any]]:
    return dict(json.loads(STORED.read_text(encoding="utf-8")))
