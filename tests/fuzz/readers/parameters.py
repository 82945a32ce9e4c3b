"""Parameter sets, as a manifest has them: of what is taken, sizes and security can be computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from atlasc.bundle.manifest import Facts
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, read_json
from atlasc.targets import find_target
from tests.fuzz.content import Content
from tests.fuzz.mutate import mutated
from tests.fuzz.reader import Reader

KINDS = ("leveled", "bootstrapped")
SEEDS = [(target, kind) for target in ("cpu", "cuda", "desilo") for kind in KINDS]
NUMBERS = (-1, 0, 1, 7, 8, 9, 10, 11, 13, 16, 17, 18, 63, 64, 65, 1000, 2**31, 2**64, 10**30)


def _seeds(folder: Path) -> list[Path]:
    places = []
    for target, kind in SEEDS:
        sets = find_target(target).parameters
        chosen = sets.choose(5) if kind == "leveled" else sets.bootstrapped()
        places.append(folder / f"{target}-{kind}.json")
        facts = {"target": target, "parameters": chosen.to_dict()}
        places[-1].write_text(json.dumps(facts))
    return places


def _mutated(rng: Random, seeds: Sequence[Content]) -> Content:
    """As other JSON files; or with numbers near those that are possible."""
    if rng.random() < 0.3:
        return mutated(rng, seeds)
    seed = rng.choice(seeds)
    data = seed.files[""]
    assert isinstance(data, bytes)
    facts: dict[str, Any] = json.loads(data)
    for name, value in facts["parameters"].items():
        if isinstance(value, int) and rng.random() < 0.6:
            near = rng.choice(NUMBERS) if rng.random() < 0.5 else rng.randrange(80)
            facts["parameters"][name] = near
        elif isinstance(value, str) and rng.random() < 0.2:
            facts["parameters"][name] = rng.choice(("", "fourteen_levels", "fifteen_levels_40"))
    return seed.with_file("", json.dumps(facts).encode())


def _read(path: Path) -> object:
    facts = read_json(path, Facts, "the parameters", MIB)
    target, stated = facts.get("target"), facts.get("parameters")
    if not isinstance(target, str) or not isinstance(stated, dict):
        raise AtlasError("these are no parameters")
    found = find_target(target).parameters.from_dict(stated)
    top = len(found.moduli.primes) - 1
    assert found.security_bits >= 0 and found.slots >= 1
    assert 0 < found.digits(found.max_level) <= found.residues(found.max_level)
    return found.key_bytes(top), found.ciphertext_bytes(top), found.shape


READER = Reader("parameters", _seeds, _read, 2000, mutate=_mutated)
