"""Readers of the engine that encrypts, on changed files, under address and undefined sanitizers.

The fuzzer is that of the runtime (tests/atlasc/emit/files/test_fuzz.py), with this engine in a ring
of 4,096 coefficients. ``ATLASC_FUZZ_INPUTS`` is four times the number of changed files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.atlasc.emit.files.test_fuzz import INPUTS, changed_files

FUZZ = Path(__file__).parents[1] / "fuzz"
FILES = ("ciphertext", "secret", "evaluation", "public", "query", "answer")
"""What it reads by code of its own, and messages, which hold its ciphertexts."""


@pytest.fixture(scope="module")
def fuzzer(build: Callable[..., Path]) -> Path:
    return build("fuzz", *(FUZZ / f"{name}.cpp" for name in ("fuzz", "program", "mutate")))


@pytest.mark.parametrize("reader", FILES)
def test_changed_files_of_an_engine(fuzzer: Path, reader: str, tmp_path: Path) -> None:
    changed_files(fuzzer, reader, tmp_path, max(INPUTS // 4, 100))
