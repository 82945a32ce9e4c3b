"""Values at the starts of blocks, kept for settings that begin alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from threading import Lock

import numpy as np

from atlasc.ir.module import Value

ROOT = 0


class Snapshots:
    """Least recently used values by key, up to a number of bytes. Safe for several threads.

    Args:
        memory: bytes of arrays to keep.
    """

    def __init__(self, memory: int = 0) -> None:
        self.memory = memory
        self._ids: dict[tuple[int, Hashable], int] = {}
        self._values: OrderedDict[int, dict[Value, np.ndarray]] = OrderedDict()
        self._failures: dict[int, str] = {}
        self._bytes = 0
        self._lock = Lock()

    def keys(self, parts: Iterable[Hashable]) -> list[int]:
        """A key for each beginning of a sequence: equal beginnings have equal keys."""
        with self._lock:
            found, last = [], ROOT
            for part in parts:
                last = self._ids.setdefault((last, part), len(self._ids) + 1)
                found.append(last)
            return found

    def load(self, key: int) -> dict[Value, np.ndarray] | None:
        """The values stored under a key, if they are still kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def store(self, key: int, values: dict[Value, np.ndarray]) -> None:
        """Keep values; the least recently used ones go when memory is short."""
        size = _bytes(values)
        if size > self.memory:
            return
        with self._lock:
            if key in self._values:
                return
            self._values[key] = values
            self._bytes += size
            while self._bytes > self.memory:
                self._bytes -= _bytes(self._values.popitem(last=False)[1])

    def failure(self, key: int) -> str | None:
        """Where settings that begin like this exploded, if they did."""
        return self._failures.get(key)

    def store_failure(self, key: int, where: str) -> None:
        """Remember that settings that begin like this explode."""
        self._failures[key] = where


def _bytes(values: dict[Value, np.ndarray]) -> int:
    return sum(array.nbytes for array in values.values())
