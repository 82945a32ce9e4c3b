"""The ledger beside a secret key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atlasc.bundle.ledger import LEDGER, Entry, Ledger
from tests.fuzz.reader import Reader

PROGRAM, ANSWER = "a" * 64, "b" * 64


def _entry(number: int, answer: str = ANSWER) -> Entry:
    return Entry(f"{number:032x}", PROGRAM, 2, answer)


def _seeds(folder: Path) -> list[Path]:
    ledger = Ledger(folder)
    for number in range(3):
        ledger.add(_entry(number, ""), "")
    ledger.answer(_entry(0))
    ledger.share(_entry(1), 30, 3)
    ledger.refuse(_entry(2))
    return [ledger.path]


def _read(path: Path) -> Any:
    path.chmod(0o600)
    beside = path.with_name(LEDGER)
    path.rename(beside)
    try:
        return Ledger(path.parent).check(_entry(0))
    finally:
        beside.rename(path)


READER = Reader("ledger", _seeds, _read, 2000)
