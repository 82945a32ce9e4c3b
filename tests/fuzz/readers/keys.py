"""The index of a folder of keys."""

from __future__ import annotations

from pathlib import Path

from atlasc.program.key_plan import Derivation, KeyPlan
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.key_folders import read_index, write_index
from tests.fuzz.reader import Reader

PARAMETERS = CpuParameters(14, 7, 1)
PLAN = KeyPlan({1: 5, 2: 1, 64: 3}, relinearization_level=6, derivation=Derivation(3, 5, {2: 1}))


def _seeds(folder: Path) -> list[Path]:
    place = folder / "server"
    place.mkdir()
    told = {"target": "cpu", "identity": "0" * 32, **PLAN.facts()}
    write_index(folder, "server", PARAMETERS, **told)
    return [place]


def _read(folder: Path) -> object:
    index = read_index(folder, "server", "cpu", PARAMETERS)
    return index.identity, index.plan


READER = Reader("keys", _seeds, _read, 2000)
