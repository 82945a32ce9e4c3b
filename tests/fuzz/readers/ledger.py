"""The ledger beside a secret key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atlasc.bundle.ledger import LEDGER, Ledger, Named
from tests.fuzz.reader import Reader

PROGRAM, ANSWER = "a" * 64, "b" * 64


def _seeds(folder: Path) -> list[Path]:
    ledger = Ledger(folder)
    for number in range(3):
        ledger.made(f"{number:032x}", PROGRAM, 2)
    ledger.took(Named(f"{0:032x}", PROGRAM, 2, ANSWER))
    ledger.share(Named(f"{1:032x}", PROGRAM, 2, ANSWER), 30, 3)
    return [ledger.path]


def _read(path: Path) -> Any:
    path.chmod(0o600)
    beside = path.with_name(LEDGER)
    path.rename(beside)
    try:
        return Ledger(path.parent).check(Named(f"{0:032x}", PROGRAM, 2, ANSWER))
    finally:
        beside.rename(path)


READER = Reader("ledger", _seeds, _read, 2000)
