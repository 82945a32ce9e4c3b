"""The HTTP application: endpoints, refusals as JSON, one line of the log for each change."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from atlasc.ir.errors import AtlasError
from atlasc.remote.wire import Fault
from atlasc.service import endpoints, v2
from atlasc.service.faults import Refusal, fault_of, refusal_of
from atlasc.service.requests import Service
from atlasc.service.telemetry import Metrics, log

Scope = MutableMapping[str, Any]
App = Callable[
    [Scope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[Any]
]


def make_app(service: Service, grace: float, more: Sequence[APIRouter] = ()) -> App:
    """The application of a service.

    Args:
        grace: seconds that the job that runs gets when the service ends.
        more: further endpoints.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.runner.start()
        log("info", "service started", queued=service.jobs.waiting())
        yield
        log("info", "service ends", grace=grace)
        service.runner.stop(grace)

    # No generated pages: they would load scripts from other servers.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.service = service
    for router in (v2.router, endpoints.router, *more):
        app.include_router(router)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(Exception, _failed)
    for kind in (AtlasError, OSError, sqlite3.Error):
        app.add_exception_handler(kind, _failed)
    return Watched(app, service.metrics)


class Watched:
    """An application whose requests are counted, and logged if they change or are refused."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(
        self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", "unknown")
            self.metrics.answered(scope["method"], route, status, seconds)
            if scope["method"] != "GET" or status >= 400:
                tenant = scope.get("state", {}).get("tenant")
                log(
                    "info" if status < 500 else "error", "request", method=scope["method"],
                    route=route, status=status, seconds=seconds, tenant=tenant,
                )  # fmt: skip


def _refused(refusal: Refusal) -> JSONResponse:
    headers = {}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(math.ceil(refusal.retry_after))
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(fault_of(refusal).model_dump(), refusal.status, headers)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    why = "a parameter of the address is missing or wrong"
    return _refused(Refusal(400, "the request is not what is expected here", why=why))


def _unknown(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _refused(Refusal(status, "there is nothing at this address"))


def _failed(request: Request, error: Exception) -> JSONResponse:
    refusal = refusal_of(error)
    if refusal is None:
        log("error", "internal error", error=type(error).__name__, at=_place(error))
        fault = Fault(error="the service failed", why="this is a fault of the service")
        return JSONResponse(fault.model_dump(), 500)
    return _refused(refusal)


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
