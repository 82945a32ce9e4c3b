"""Keeps the fits of these tests out of the user's own cache."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLASC_CACHE", str(tmp_path_factory.mktemp("fits")))
        yield
