"""How long a body may take: a minute, then its least speed, and no pause of a minute.

The clock of this file is a number, so that minutes pass at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from atlasc.service import requests
from atlasc.service.faults import Refusal
from atlasc.service.requests import BODY_SECONDS, LEAST_SPEED, body_parts

NEAR = BODY_SECONDS - 1


@dataclass
class Clock:
    """A request whose parts come at given times, and what waits for it."""

    parts: Sequence[tuple[float, int]]
    now: float = 0.0
    pause: float = 0.0

    def monotonic(self) -> float:
        return self.now

    async def stream(self) -> AsyncIterator[bytes]:
        """A part for each pause and size, then nothing, for ever."""
        for pause, size in self.parts:
            self.pause = pause
            yield bytes(size)
        self.pause = float("inf")
        yield b""

    async def wait_for(self, part: Awaitable[bytes], seconds: float) -> bytes:
        """As that of asyncio."""
        found = await part
        self.now += min(self.pause, seconds)
        if self.pause > seconds:
            raise asyncio.TimeoutError
        return found


def spent(parts: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Seconds until a body without an end is refused, and its bytes until then."""
    clock, size = Clock(parts), 0

    async def read() -> None:
        nonlocal size
        request: Any = clock
        async for part in body_parts(request):
            size += len(part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "time", clock)
        patch.setattr(requests.asyncio, "wait_for", clock.wait_for)
        with pytest.raises(Refusal) as caught:
            asyncio.run(read())
    assert caught.value.status == 408
    return clock.now, size


def allowed(parts: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """The same, by the sentence of docs/deploy.md."""
    now, size = 0.0, 0
    for pause, more in (*parts, (float("inf"), 0)):
        end = min(BODY_SECONDS + size / LEAST_SPEED, now + BODY_SECONDS)
        if now + pause > end:
            return end, size
        now, size = now + pause, size + more
        if now >= BODY_SECONDS + size / LEAST_SPEED:
            return now, size
    raise AssertionError("the last pause has no end")


PAUSES = st.one_of(st.floats(0, 2 * BODY_SECONDS), st.sampled_from((NEAR, BODY_SECONDS)))


@given(st.lists(st.tuples(PAUSES, st.integers(0, 1 << 20)), max_size=12))
@example([(NEAR, 1)])
@example([(NEAR, 1), (NEAR, 1)])
@example([(NEAR, LEAST_SPEED), (2.0, 0), (NEAR, 0)])
def test_a_body_has_a_minute_and_its_least_speed(parts: list[tuple[float, int]]) -> None:
    found, wanted = spent(parts), allowed(parts)
    assert found[0] == pytest.approx(wanted[0]) and found[1] == wanted[1]


def test_a_pause_before_the_minute_is_over_gives_no_other_minute() -> None:
    """It was 119 seconds."""
    seconds, size = spent([(NEAR, 1)])
    assert seconds == pytest.approx(BODY_SECONDS, abs=0.01) and size == 1
