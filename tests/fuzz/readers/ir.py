"""IR text: parsed, verified, and printed again if it is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atlasc.ir.parser import parse
from atlasc.ir.printer import print_module
from atlasc.ir.verifier import verify
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import random_programs


def _seeds(level: str) -> Any:
    def seeds(folder: Path) -> list[Path]:
        paths = []
        for number, text in enumerate(random_programs(level)):
            paths.append(folder / f"{number}.air")
            paths[-1].write_text(text, encoding="utf-8")
        return paths

    return seeds


def _read(path: Path) -> str:
    module = parse(path.read_bytes().decode("utf-8", "replace"), source="text.air")
    verify(module)
    text = print_module(module)
    assert print_module(parse(text)) == text
    return text


READERS = [Reader(f"ir-{level}", _seeds(level), _read, 300) for level in ("nn", "poly", "ckks")]
