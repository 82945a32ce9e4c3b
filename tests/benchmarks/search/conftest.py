"""The small problem of the search's own tests."""

from tests.passes.conftest import session_cache  # noqa: F401

from tests.atlasc.search.conftest import problem  # noqa: F401
