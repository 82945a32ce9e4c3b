"""Makes the helpers in lowering/ importable under every import mode of pytest; keeps the fits of
these tests out of the user's own cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lowering"))


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLASC_CACHE", str(tmp_path_factory.mktemp("fits")))
        yield
