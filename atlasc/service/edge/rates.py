"""How often each of many may do something: a bucket for each, which fills up again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Lock

from atlasc.service.faults import Refusal

MOST = 4096
"""Names whose buckets are remembered."""


@dataclass
class Rates:
    """How often each asks.

    Attributes:
        rate: times a second for long.
        burst: times at once; by default those of two seconds.
        who: whoever has a bucket, for messages.
    """

    rate: float
    burst: float = 0.0
    who: str = "a tenant"
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.burst = self.burst or 2 * self.rate

    def allows(self, name: str) -> bool:
        """Count a try; whether it is one of those that are allowed."""
        with self._lock:
            now = time.monotonic()
            left, since = self._left.get(name, (self.burst, now))
            left = min(self.burst, left + (now - since) * self.rate)
            self._left[name] = (left - (left >= 1), now)
            if len(self._left) > MOST:
                self._forget(now)
        return left >= 1

    def take(self, name: str) -> None:
        """Count a request.

        Raises:
            Refusal: there were too many.
        """
        if not self.allows(name):
            raise Refusal(
                429,
                "too many requests",
                why=f"{self.who} may send {self.rate:.3g} a second",
                retry_after=1 / self.rate,
            )

    def _forget(self, now: float) -> None:
        """Forget the buckets that are full again; all of them if that is not enough."""
        full = self.burst / self.rate
        self._left = {name: one for name, one in self._left.items() if now - one[1] < full}
        if len(self._left) > MOST:
            self._left.clear()
