"""The folder where every command ran once, for all tests of faults."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.workspace import Workspace


@pytest.fixture(scope="session")
def workspace() -> Iterator[Workspace]:
    if importlib.util.find_spec("desilofhe") is None:
        pytest.skip("needs desilofhe: pip install desilofhe==1.17.0")
    with tempfile.TemporaryDirectory(prefix="atlasc-faults-") as folder:
        yield Workspace.make(Path(folder))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that other users may look into, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="atlasc-faults-") as folder:
        yield Path(folder)
