"""Values in the middle of a model, kept for settings that begin alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
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
        self._failures: set[int] = set()
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
            return self._values.get(key)

    def touch(self, path: Sequence[int]) -> None:
        """Mark the keys of a setting as used, its first ones last: they are shared the most."""
        with self._lock:
            for key in reversed(path):
                if key in self._values:
                    self._values.move_to_end(key)

    def store(self, key: int, values: dict[Value, np.ndarray], path: Sequence[int] = ()) -> None:
        """Keep values; the least recently used ones go when memory is short.

        Args:
            path: keys that must not go for it; if only those are left, the values are not kept.
        """
        size = _bytes(values)
        with self._lock:
            if key in self._values:
                return
            held = set(path)
            for old in [k for k in self._values if k not in held]:
                if self._bytes + size <= self.memory:
                    break
                self._bytes -= _bytes(self._values.pop(old))
            if self._bytes + size <= self.memory:
                self._values[key] = values
                self._bytes += size

    def fails(self, key: int) -> bool:
        """Whether settings that begin like this are known to explode there."""
        return key in self._failures

    def store_failure(self, key: int) -> None:
        """Remember that settings that begin like this explode."""
        self._failures.add(key)


def _bytes(values: dict[Value, np.ndarray]) -> int:
    return sum(array.nbytes for array in values.values())
