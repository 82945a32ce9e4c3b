"""What every request passes before the application: health, its token, its rate, its line.

Who has no valid token gets no further than this: a refusal costs a tenth of what the application
takes. Health is answered first, whatever the limits say.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any

from fastapi.responses import JSONResponse, Response

from atlasc.service.edge.door import Place, address_of
from atlasc.service.edge.protocol import HEALTH, PLACE, RESTS
from atlasc.service.edge.rates import Rates
from atlasc.service.faults import Refusal
from atlasc.service.requests import Service, response_of
from atlasc.service.telemetry import log
from atlasc.service.tokens import Caller, find_caller

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[Any]]
App = Callable[[Scope, Receive, Send], Awaitable[Any]]
LIVE, READY = "/v2/health/live", "/v2/health/ready"
_CLOSE = (b"connection", b"close")
MAX_QUERY = 1024
"""Most bytes of a query string: those that are asked for have two digests."""
MOST_WHY = 1000
"""Characters of the reason of a service that has failed."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
"""Methods that have a name in figures and lines; all others are one."""


class Gate:
    """An application that only those with a token reach.

    Args:
        free: paths that need no token.
    """

    def __init__(self, app: App, service: Service, free: frozenset[str]) -> None:
        self._app, self._service, self._free = app, service, free
        self._of_address, self._of_all = Rates(5.0, who="an address"), Rates(50.0, who="all")
        self._was_ready: bool | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, received, sent = time.monotonic(), 500, 0, 0

        async def taken() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def watched(message: Message) -> None:
            nonlocal status, sent
            sent += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                status = message["status"]
                state = scope["state"]
                if status == 429:
                    state[RESTS] = True
                if HEALTH not in state and state.get("tenant") is None:
                    message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._answer(scope, taken, watched)
        finally:
            self._note(scope, status, time.monotonic() - started, received, sent)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, path = scope["state"], scope["path"]
        if path in (LIVE, READY) and scope["method"] in ("GET", "HEAD"):
            state[HEALTH] = True
            await self._health(path)(scope, receive, send)
            return
        with ExitStack() as stack:
            try:
                state["caller"] = caller = self._admitted(scope)
                if caller is not None:
                    stack.enter_context(self._service.at_once("requests", caller.tenant))
            except Refusal as refusal:
                await response_of(refusal)(scope, receive, send)
                return
            await self._app(scope, receive, send)

    def _health(self, path: str) -> Response:
        if path == LIVE:
            return JSONResponse({"live": True})
        ready = self._service.ready
        if ready != self._was_ready:  # of many probes the first one is worth a line
            self._was_ready = ready
            log("info", "the service is ready" if ready else "the service is not ready")
        failed = {"failed": why[:MOST_WHY]} if (why := self._service.runner.failure) else {}
        return JSONResponse({"ready": ready, **failed}, 200 if ready else 503)

    def _admitted(self, scope: Scope) -> Caller | None:
        """Who asks; None where that does not matter.

        Raises:
            Refusal: the token is not valid, the tenant asks too often, all places are taken, or the
                query string is long.
        """
        place: Place = scope["state"][PLACE]
        if place.spare:
            raise Refusal(503, "the service has no free connection", retry_after=1)
        if len(scope["query_string"]) > MAX_QUERY:
            raise Refusal(414, "the address is too long", why=f"it asks in over {MAX_QUERY} bytes")
        caller = find_caller(self._service.store, _token(scope), self._service.store.at_the_gate)
        if caller is None and scope["path"] in self._free:
            self._of_address.take(address_of(scope["client"][0]))
            self._of_all.take("all")
            return None
        if caller is None:
            raise Refusal(
                401,
                "this service needs a valid token",
                why="the token is missing, unknown, expired or revoked",
                remedy="send the header Authorization: Bearer TOKEN; whoever runs the service "
                "makes tokens with atlasc tokens",
            )
        place.admit()
        scope["state"]["tenant"] = caller.tenant
        self._service.rates.take(caller.tenant)
        return caller

    def _note(self, scope: Scope, status: int, seconds: float, received: int, sent: int) -> None:
        """Count a request, and write a line if it changed something or was refused."""
        state, method = scope["state"], scope["method"]
        method = method if method in METHODS else "other"
        health = scope["path"] if HEALTH in state else "unknown"
        route = str(getattr(scope.get("route"), "path", health))
        self._service.metrics.answered(method, route, status, seconds, received, sent)
        if HEALTH in state or (method in ("GET", "HEAD") and status < 400):
            return
        tenant = state.get("tenant")
        log(
            "info" if status < 500 else "error", "request", method=method, route=route,
            status=status, seconds=seconds, tenant=tenant,
            budget="strangers" if tenant is None else "tenants",
        )  # fmt: skip


def _token(scope: Scope) -> str:
    """The token of the header ``Authorization``; empty if there is none, or not just one."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    kind, _, token = found[0].decode("latin-1").partition(" ") if len(found) == 1 else ("", "", "")
    return token.strip() if kind.lower() == "bearer" else ""
