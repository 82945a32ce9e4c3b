"""What every request goes through: how often, how much at once, and how much of a body is taken."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Semaphore
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator
from starlette.requests import ClientDisconnect

from atlasc.ir.files import KIB, parse_json, whole_number
from atlasc.remote.wire import Fault
from atlasc.service.edge.rates import Rates
from atlasc.service.faults import Refusal, fault_of
from atlasc.service.jobs import Jobs
from atlasc.service.programs import Programs
from atlasc.service.runner import Runner
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics
from atlasc.service.tokens import Caller
from atlasc.service.uploads import Uploads

Read = TypeVar("Read")
BODY_SECONDS = 60.0
"""A client that sends nothing for so long is gone."""
LEAST_SPEED = 16 * KIB
"""Bytes a second that a body has after its first minute."""
AT_ONCE = {"requests": 24, "bodies": 4, "chunks": 2, "infer": 16}
"""What one tenant may do at once: all requests; bodies that go to the disk; chunks of keys, which
are in memory; and queries that wait for answers. Nobody can take the connections and the memory of
all."""
ALL_AT_ONCE = {"chunks": 8}
"""What all tenants together may do at once."""
MAX_REQUEST = 64 * KIB
"""Most bytes of the JSON of a request."""
MOST_VALUES = 256
"""Most values in it: what is wrong with each takes time and memory."""
CHECKS = 2
"""Whole queries that are in memory at once, to be checked."""


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
        mine, whole = (what, tenant), (what, "")
        why = ""
        if self._now[mine] >= AT_ONCE[what]:
            why = f"a tenant may have {AT_ONCE[what]} of this kind"
        elif self._now[whole] >= ALL_AT_ONCE.get(what, math.inf):
            why = f"all tenants together may have {ALL_AT_ONCE[what]} of this kind"
        if why:
            raise Refusal(429, "too many requests at once", why=why, retry_after=1)
        self._now.update((mine, whole))
        try:
            yield
        finally:
            for one in (mine, whole):
                self._now[one] -= 1
                if not self._now[one]:
                    del self._now[one]

    @property
    def ready(self) -> bool:
        """Whether jobs are taken and computed."""
        return self.runner.ready and not self.stopping


def response_of(refusal: Refusal, told: Fault | None = None) -> JSONResponse:
    """The answer to a request that is refused; ``told`` stands in place of what it says."""
    headers = {}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(math.ceil(refusal.retry_after))
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse((told or fault_of(refusal)).model_dump(), refusal.status, headers)


async def service_of(request: Request) -> Service:  # async: others take a thread each
    """The service that got a request."""
    found: Service = request.app.state.service
    return found


def _allowed(scope: str | None) -> Callable[[Request], Awaitable[Caller]]:
    async def caller(request: Request) -> Caller:
        found: Caller | None = getattr(request.state, "caller", None)
        if found is None:
            raise Refusal(401, "this service needs a valid token")  # the gate has refused it before
        if scope is not None and scope not in found.scopes:
            raise Refusal(
                403,
                f"this token does not allow {scope}",
                why=f"its scopes are {', '.join(sorted(found.scopes))}",
            )
        return found

    return caller


Anyone = Annotated[Caller, Depends(_allowed(None))]
"""A caller with any valid token."""
Asking = Annotated[Caller, Depends(_allowed("infer"))]
Keeping = Annotated[Caller, Depends(_allowed("keys"))]
Watching = Annotated[Caller, Depends(_allowed("metrics"))]
Here = Annotated[Service, Depends(service_of)]


def _stated(text: object) -> int:
    found = whole_number(str(text))
    if found is None:
        raise ValueError("not a whole number")
    return found


Place = Annotated[int, BeforeValidator(_stated)]
"""A number in an address."""


async def body_parts(request: Request) -> AsyncIterator[bytes]:
    """The parts of a body as they arrive.

    Raises:
        Refusal: the client has gone, or sends nothing or little for too long.
    """
    parts = request.stream().__aiter__()
    started, size = time.monotonic(), 0
    while (left := started + BODY_SECONDS + size / LEAST_SPEED - time.monotonic()) > 0:
        try:
            part = await asyncio.wait_for(parts.__anext__(), min(left, BODY_SECONDS))
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            break
        except ClientDisconnect:
            raise Refusal(400, "the request ended before its end") from None
        size += len(part)
        yield part
    raise Refusal(408, "the request did not end", why=f"{size} bytes came")


async def whole_body(request: Request, limit: int) -> bytearray:
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
    return content


async def json_body(request: Request, schema: type[Read]) -> Read:
    """A body that is a JSON object of a schema.

    Raises:
        Refusal: it is not.
    """
    content = await whole_body(request, MAX_REQUEST)
    try:
        return parse_json(bytes(content), schema, MOST_VALUES)
    except ValueError as error:
        raise Refusal(400, "the request is not what is expected here", why=str(error)) from None


def require_length(request: Request, limit: int) -> None:
    """Refuse a body that says that it is larger than ``limit``, before it is taken."""
    if (whole_number(request.headers.get("content-length", "")) or 0) > limit:
        raise too_large(limit)


def too_large(limit: int) -> Refusal:
    """The refusal of a body that is too large."""
    return Refusal(413, "the request is too large", why=f"at most {limit} bytes are taken here")
