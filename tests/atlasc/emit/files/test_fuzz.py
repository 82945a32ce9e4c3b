"""Readers of the C++ runtime on changed files, under the address and undefined sanitizers.

``ATLASC_FUZZ_INPUTS`` is the number of changed files of each reader; ``make fuzz`` sets it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cpp_build import ROOT

READERS = (
    "json", "header", "query", "answer", "secret", "evaluation", "public", "ciphertext", "weights",
    "program", "text", "ledger",
)  # fmt: skip
INPUTS = int(os.environ.get("ATLASC_FUZZ_INPUTS", "400"))
SEED = int(os.environ.get("ATLASC_FUZZ_SEED", "11"))
CORPUS = ROOT / "tests" / "runtime_cuda" / "fuzz" / "corpus"
ENVIRONMENT = {
    "ASAN_OPTIONS": "max_allocation_size_mb=1024:allocator_may_return_null=0:detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@pytest.mark.parametrize("reader", READERS)
def test_changed_files(sanitized: Path, reader: str, tmp_path: Path) -> None:
    changed_files(sanitized / "fuzz", reader, tmp_path, INPUTS)


def changed_files(fuzzer: Path, reader: str, folder: Path, inputs: int) -> None:
    """Refused by an Error, or taken with the same content; no crash, hang or large memory."""
    given = ("--seed", SEED, "--inputs", inputs, "--reader", reader, "--corpus", CORPUS)
    done = subprocess.run(
        [str(fuzzer), *map(str, given)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | ENVIRONMENT,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {SEED}, {inputs} inputs" in done.stdout


def test_the_corpus_is_read() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(READERS)
