"""The index of a folder of keys."""

from __future__ import annotations

from pathlib import Path

from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.desilo.parameters import DesiloParameters
from atlasc.targets.key_folders import read_index, write_index
from tests.fuzz.reader import Reader

PLAN = KeyPlan({1: 5, 64: 3}, relinearization_level=6)


def _seeds(folder: Path) -> list[Path]:
    place = folder / "server"
    place.mkdir()
    write_index(place, "server", "desilo", DesiloParameters(14, 1), "0" * 32, PLAN)
    return [place]


def _read(folder: Path) -> object:
    index = read_index(folder, "server", "desilo")
    rotations = {int(amount): level for amount, level in index.rotations.items()}
    return DesiloParameters.from_dict(index.parameters), index.identity, rotations


READER = Reader("keys", _seeds, _read, 2000)
