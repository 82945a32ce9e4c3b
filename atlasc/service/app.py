"""The HTTP application: endpoints, behind a gate; refusals as JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from atlasc.ir.errors import AtlasError
from atlasc.remote.wire import Fault
from atlasc.service import endpoints, v2
from atlasc.service.edge.gate import App, Gate
from atlasc.service.faults import Refusal, refusal_of
from atlasc.service.requests import Service, response_of
from atlasc.service.telemetry import log

THREADS = 4
"""Requests that work in threads at once, on disk or database. Each competes with the loop, and so
with every other connection, for the interpreter."""


def make_app(service: Service, grace: float, more: Sequence[APIRouter] = ()) -> App:
    """The application of a service.

    Args:
        grace: seconds that the job that runs gets when the service ends.
        more: further endpoints, which need no token.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        service.runner.start()
        asked = len(service.runner.workers)
        log("info", "service started", queued=service.jobs.waiting(), workers=asked)
        yield
        log("info", "service ends", grace=grace)
        service.runner.stop(grace)

    # No generated pages: they would load scripts from other servers.
    # No redirections either: they would lead to the host that the request names.
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=lifespan
    )  # fmt: skip
    app.state.service = service
    for router in (v2.router, endpoints.router, *more):
        app.include_router(router)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(Exception, _failed)
    for kind in (AtlasError, OSError, sqlite3.Error):
        app.add_exception_handler(kind, _failed)
    free = {route.path for router in more for route in router.routes if isinstance(route, APIRoute)}
    return Gate(app, service, frozenset(free))


def _invalid(request: Request, error: Exception) -> JSONResponse:
    why = "a parameter of the address is missing or wrong"
    return response_of(Refusal(400, "the request is not what is expected here", why=why))


def _unknown(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 404
    return response_of(Refusal(status, "there is nothing at this address"))


def _failed(request: Request, error: Exception) -> JSONResponse:
    refusal = refusal_of(error)
    if refusal is None:
        log("error", "internal error", error=type(error).__name__, at=_place(error))
        fault = Fault(error="the service failed", why="this is a fault of the service")
        return JSONResponse(fault.model_dump(), 500)
    return response_of(refusal)


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
