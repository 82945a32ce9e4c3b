"""The small problem of the search's own tests."""

from tests.passes.search.conftest import problem, session_cache  # noqa: F401
