"""What every request goes through: who sent it, how often, and how much of a body is taken."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Semaphore
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from atlasc.ir.files import parse_json
from atlasc.remote.wire import MAX_JSON
from atlasc.service.faults import Refusal
from atlasc.service.jobs import Jobs
from atlasc.service.programs import Programs
from atlasc.service.runner import Runner
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics
from atlasc.service.tokens import Caller, find_caller
from atlasc.service.uploads import Uploads

Read = TypeVar("Read")
BODY_SECONDS = 60.0
"""A client that sends nothing for so long is gone."""
AT_ONCE = {"bodies": 4, "infer": 16}
"""What one tenant may do at once: send bodies, and wait for answers. Nobody can take the
connections and the memory of all."""
CHECKS = 2
"""Whole queries that are in memory at once, to be checked."""


@dataclass
class Rates:
    """How often each tenant asks.

    Attributes:
        rate: requests a second that a tenant may send for long; twice as many at once.
    """

    rate: float
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def take(self, tenant: str) -> None:
        """Count a request.

        Raises:
            Refusal: the tenant sent too many.
        """
        with self._lock:
            now = time.monotonic()
            left, since = self._left.get(tenant, (2 * self.rate, now))
            left = min(2 * self.rate, left + (now - since) * self.rate)
            self._left[tenant] = (left - (left >= 1), now)
        if left < 1:
            raise Refusal(
                429,
                "too many requests",
                why=f"a tenant may send {self.rate:g} a second",
                retry_after=1 / self.rate,
            )


@dataclass
class Service:
    """All parts of a service that endpoints use."""

    store: Store
    programs: Programs
    uploads: Uploads
    jobs: Jobs
    runner: Runner
    metrics: Metrics
    rates: Rates
    infer_seconds: float
    stopping: bool = False
    checks: Semaphore = field(default_factory=lambda: Semaphore(CHECKS))
    _now: Counter[tuple[str, str]] = field(default_factory=Counter)

    @contextmanager
    def at_once(self, what: str, tenant: str) -> Iterator[None]:
        """Count what a tenant does at once, see ``AT_ONCE``; for the event loop's thread alone.

        Raises:
            Refusal: it is too much.
        """
        if self._now[what, tenant] >= AT_ONCE[what]:
            why = f"a tenant may have {AT_ONCE[what]} of this kind"
            raise Refusal(429, "too many requests at once", why=why, retry_after=1)
        self._now[what, tenant] += 1
        try:
            yield
        finally:
            self._now[what, tenant] -= 1


def service_of(request: Request) -> Service:
    """The service that got a request."""
    found: Service = request.app.state.service
    return found


def _allowed(scope: str | None) -> Callable[[Request], Caller]:
    def caller(request: Request) -> Caller:
        service = service_of(request)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        found = find_caller(service.store, token.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise Refusal(
                401,
                "this service needs a valid token",
                why="the token is missing, unknown, expired or revoked",
                remedy="send the header Authorization: Bearer TOKEN; whoever runs the service "
                "makes tokens with atlasc tokens",
            )
        request.state.tenant = found.tenant
        if scope is not None and scope not in found.scopes:
            raise Refusal(
                403,
                f"this token does not allow {scope}",
                why=f"its scopes are {', '.join(sorted(found.scopes))}",
            )
        service.rates.take(found.tenant)
        return found

    return caller


Anyone = Annotated[Caller, Depends(_allowed(None))]
"""A caller with any valid token."""
Asking = Annotated[Caller, Depends(_allowed("infer"))]
Keeping = Annotated[Caller, Depends(_allowed("keys"))]
Watching = Annotated[Caller, Depends(_allowed("metrics"))]
Here = Annotated[Service, Depends(service_of)]


async def body_parts(request: Request) -> AsyncIterator[bytes]:
    """The parts of a body as they arrive.

    Raises:
        Refusal: nothing arrives for too long.
    """
    parts = request.stream().__aiter__()
    while True:
        try:
            yield await asyncio.wait_for(parts.__anext__(), BODY_SECONDS)
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            raise Refusal(408, "the request did not end") from None


async def whole_body(request: Request, limit: int) -> bytes:
    """A body of at most ``limit`` bytes.

    Raises:
        Refusal: it is larger, or does not end.
    """
    require_length(request, limit)
    content = bytearray()
    async for part in body_parts(request):
        content += part
        if len(content) > limit:
            raise too_large(limit)
    return bytes(content)


async def json_body(request: Request, schema: type[Read]) -> Read:
    """A body that is a JSON object of a schema.

    Raises:
        Refusal: it is not.
    """
    content = await whole_body(request, MAX_JSON)
    try:
        return parse_json(content, schema)
    except ValueError as error:
        raise Refusal(400, "the request is not what is expected here", why=str(error)) from None


def require_length(request: Request, limit: int) -> None:
    """Refuse a body that says that it is larger than ``limit``, before it is taken."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limit:
        raise too_large(limit)


def too_large(limit: int) -> Refusal:
    """The refusal of a body that is too large."""
    return Refusal(413, "the request is too large", why=f"at most {limit} bytes are taken here")
