"""What a search writes: the front, the calibration beside it, the journal of evaluations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from atlasc.calibration.calibrate import read_calibration
from atlasc.compilation.fronts import load_front
from atlasc.search.front import Front, Wanted
from atlasc.search.journal import Journal
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled


def _copied(name: str) -> Seeds:
    def seeds(folder: Path) -> list[Path]:
        return [Path(shutil.copy(compiled() / "front" / name, folder))]

    return seeds


def _front(path: Path) -> object:
    front = Front.load(path)
    front.pick(Wanted(1.0))
    return json.dumps(front.to_dict())


def _calibration(path: Path) -> object:
    calibration = read_calibration(path)
    calibration.table()
    return json.dumps(calibration.to_dict())


def _saved_seeds(folder: Path) -> list[Path]:
    (folder / "saved").mkdir()
    for name in ("front.json", "calibration.json"):
        shutil.copy(compiled() / "front" / name, folder / "saved")
    return [folder / "saved"]


def _saved(folder: Path) -> object:
    return load_front(folder).calibration.to_dict()


def _journal(path: Path) -> object:
    content = (compiled() / "front" / "evaluations.jsonl").read_bytes()
    identity = json.loads(content.partition(b"\n")[0])
    identity.pop("journal")
    with Journal.open(path, identity) as journal:
        found = {**journal.points, **journal.trials}
        return {key: point.to_dict() for key, point in found.items()}


READERS = [
    Reader("front", _copied("front.json"), _front, 1500),
    Reader("calibration", _copied("calibration.json"), _calibration, 1500),
    Reader("saved-front", _saved_seeds, _saved, 700),
    Reader("journal", _copied("evaluations.jsonl"), _journal, 1500),
]
