"""Makes ``conformance`` importable under every import mode of pytest, and registers its marker."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "heavy: needs about 16 GB of memory and several minutes")
