"""Cost tables of backends, and the times of a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.run.timing import Timing
from atlasc.targets.cost_table import load
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import ROOT, compiled, files

TABLES = (ROOT / "atlasc/targets", ROOT / "plugins/atlasc_comparisons")


def _tables(folder: Path) -> list[Path]:
    shipped = {
        f"{path.parent.name}.json": path.read_bytes()
        for path in sorted(place for folder in TABLES for place in folder.glob("*/costs.json"))
    }
    return list(files(dict(shipped))(folder))


def _table(path: Path) -> object:
    return load(path).text()


@cache
def _bundle() -> Bundle:
    return load_bundle(compiled() / "tiny" / "bundle")


def _times(folder: Path) -> list[Path]:
    program, parameters = _bundle().program, _bundle().parameters
    seconds = [1.0 + number for number in range(len(program.ops))]
    text = Timing.of(program, parameters, "sim", 1, seconds).text(_bundle())
    return list(files({"answer.timing.json": text})(folder))


def _timing(path: Path) -> object:
    return Timing.load(path, _bundle()).summary()


READERS = [
    Reader("cost-table", _tables, _table, 500),
    Reader("timing", _times, _timing, 100),
]
