"""Products with keys that end the transforms of their digits on a GPU: the same bit for bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, RUNTIME, Builder, require_compiler

from ..test_doubles import FOLDERS
from ..test_doubles import SOURCES as OF_TRANSFORMS

SOURCES = [
    Path(__file__).parent / "key_products.cpp",
    RUNTIME / "ckks/ring/packing.cu",
    *OF_TRANSFORMS,
]


@pytest.fixture(scope="module")
def program(cpp: Builder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_compiler()
    flags = (*OPTIMISED, *(f"-I{one}" for one in FOLDERS))
    return cpp.program(tmp_path_factory.mktemp("switches") / "key_products", SOURCES, flags)


@pytest.mark.parametrize("digits", [1, 3, 9, pytest.param(35, marks=pytest.mark.deep("engines"))])
def test_digits_have_the_same_products(program: Path, digits: int) -> None:
    """A block has room for 32 digits at this degree: four terms of 9 take turns, as 35 do."""
    done = subprocess.run([program, str(digits)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
