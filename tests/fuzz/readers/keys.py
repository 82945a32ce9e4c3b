"""The index of a folder of keys."""

from __future__ import annotations

from pathlib import Path

from atlasc.targets.desilo.key_files import read_index, write_index
from atlasc.targets.desilo.parameters import DesiloParameters
from tests.fuzz.reader import Reader

PLAN = {"rotations": {"1": 5, "64": 3}, "relinearization_level": 6, "conjugation_level": None}


def _seeds(folder: Path) -> list[Path]:
    place = folder / "server"
    place.mkdir()
    write_index(place, "server", DesiloParameters(14, 1), "0" * 32, PLAN)
    return [place]


def _read(folder: Path) -> object:
    parameters, identity, index = read_index(folder, "server")
    rotations = {int(amount): int(level) for amount, level in index["rotations"].items()}
    return parameters, identity, rotations


READER = Reader("keys", _seeds, _read, 2000)
