"""The small problem of the search's own tests."""

from tests.atlasc.search.conftest import problem  # noqa: F401
