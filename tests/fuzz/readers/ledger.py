"""The ledger beside a secret key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from atlasc.bundle.ledger import LEDGER, Entry, Ledger
from tests.fuzz.reader import Reader

PROGRAM, ANSWER = "a" * 64, "b" * 64


def _entry(event: Literal["query", "answer"], number: int) -> Entry:
    more = {"answer": ANSWER} if event == "answer" else {"doubt": ""}
    return Entry(event=event, query=f"{number:032x}", program=PROGRAM, count=2, **more)


def _seeds(folder: Path) -> list[Path]:
    ledger = Ledger(folder)
    for number in range(3):
        ledger.add(_entry("query", number))
    ledger.add(_entry("answer", 0))
    ledger.share(_entry("answer", 1), 30, 3)
    ledger.refuse(_entry("answer", 2))
    return [ledger.path]


def _read(path: Path) -> Any:
    path.chmod(0o600)
    beside = path.with_name(LEDGER)
    path.rename(beside)
    try:
        return Ledger(path.parent).check(_entry("answer", 0))
    finally:
        beside.rename(path)


READER = Reader("ledger", _seeds, _read, 2000)
