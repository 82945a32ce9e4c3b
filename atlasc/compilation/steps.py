"""How long work says where it stands, whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Steps = Callable[..., AbstractContextManager[Any]]
"""``steps(label, total=None, resume="")``: a context that shows progress."""


class _Silent:
    def __call__(self, advance: int = 1, note: str = "") -> None:
        """One step is done."""

    def report(self, what: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` steps."""


@contextmanager
def silent(label: str, total: int | None = None, *, resume: str = "") -> Iterator[_Silent]:
    """Steps that show nothing."""
    yield _Silent()
