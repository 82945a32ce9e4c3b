"""The Open Inference Protocol, version 2, with its extension for binary tensors.

A query is one UINT8 tensor ``query`` and an answer one UINT8 tensor ``answer``, whose bytes follow
the JSON: ciphertexts are bytes to everybody but the client. A version of a model is the identity of
its program. Beside it, a client finds its part of the bundle under ``client/``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from atlasc.ir.files import KIB, Count, parse_json, whole_number
from atlasc.remote.wire import FINISHED, JobStatus
from atlasc.service.endpoints import BYTES
from atlasc.service.faults import Refusal
from atlasc.service.intake import accept_query
from atlasc.service.programs import Served
from atlasc.service.requests import MOST_VALUES, Anyone, Asking, Here, Service, body_parts
from atlasc.service.tokens import Caller
from atlasc.version import __version__

router = APIRouter(prefix="/v2")
HEADER = "inference-header-content-length"
MAX_HEADER = 64 * KIB
POLL_SECONDS, SLOWEST_POLL = 0.05, 1.0


class Loose(BaseModel):
    """Members that are not read are ignored, as the protocol asks."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Tensor(Loose):
    """A tensor of a request."""

    name: str
    datatype: str
    shape: list[Count]
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class Inference(Loose):
    """The JSON of a request."""

    id: str | None = None
    inputs: list[Tensor]
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


@router.get("")
def server(caller: Anyone) -> dict[str, Any]:
    """Name, version and extensions."""
    return {"name": "atlasc", "version": __version__, "extensions": ["binary_tensor_data"]}


@router.get("/health/live")
def live() -> dict[str, bool]:
    """Whether the service runs; needs no token."""
    return {"live": True}


@router.get("/health/ready")
def ready(service: Here) -> JSONResponse:
    """Whether jobs are taken and computed; needs no token."""
    good = service.ready  # the gate answers before this
    return JSONResponse({"ready": good}, 200 if good else 503)


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
def metadata(service: Here, caller: Anyone, model: str, version: str = "") -> dict[str, Any]:
    """Versions and tensors of a model."""
    found = service.programs.of_model(model, version)
    versions = [one.program for one in service.programs if one.model == model]
    tensor = {"datatype": "UINT8", "shape": [-1]}
    return {
        "name": model, "versions": [version] if version else versions,
        "platform": f"atlasc_{found.bundle.target}",
        "inputs": [{"name": "query", **tensor}], "outputs": [{"name": "answer", **tensor}],
    }  # fmt: skip


@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
def model_ready(service: Here, caller: Anyone, model: str, version: str = "") -> dict[str, Any]:
    """Whether a model is answered here."""
    service.programs.of_model(model, version)
    return {"name": model, "ready": True}


@router.get("/models/{model}/versions/{version}/client/{name:path}")
def client_file(service: Here, caller: Anyone, model: str, version: str, name: str) -> FileResponse:
    """A file of the client's part of the bundle; ``manifest.json`` lists them with digests."""
    path = service.programs.of_model(model, version).client_file(name)
    return FileResponse(path, media_type=BYTES)


@router.post("/models/{model}/infer")
@router.post("/models/{model}/versions/{version}/infer")
async def infer(
    service: Here, caller: Asking, request: Request, model: str, version: str = ""
) -> Response:
    """Answer a query, and wait for it. The job goes on if the client does not."""
    served = service.programs.of_model(model, version)
    rest = body_parts(request)
    with service.at_once("infer", caller.tenant):
        asked, before = await _header(request, rest)
        keys = str(asked.parameters.get("keys", ""))
        job = await accept_query(
            service, caller, request,
            keys=keys, program=served.program, before=before, parts=rest,
        )  # fmt: skip
        content = await _answer(service, caller, job)
    return _response(served, asked, job, content)


async def _header(request: Request, parts: AsyncIterator[bytes]) -> tuple[Inference, bytes]:
    """The JSON of a request, and what was read beyond it."""
    length = whole_number(request.headers.get(HEADER, ""))
    if length is None or length > MAX_HEADER:
        raise Refusal(
            400,
            "the query is not sent as a binary tensor",
            why=f"the header {HEADER} is missing or too large",
            remedy="use the extension binary_tensor_data of the protocol",
        )
    content = bytearray()
    while len(content) < length:
        part = await anext(parts, b"")
        if not part:
            break
        content += part
    try:
        asked = parse_json(bytes(content[:length]), Inference, MOST_VALUES)
    except ValueError as error:
        raise Refusal(400, "the request cannot be read", why=str(error)) from None
    if [(one.name, one.datatype) for one in asked.inputs] != [("query", "UINT8")]:
        raise Refusal(400, "a request has one input: the UINT8 tensor query")
    size = asked.inputs[0].parameters.get("binary_data_size")
    if asked.inputs[0].shape != [size] or isinstance(size, bool):
        raise Refusal(400, "the tensor query must have the shape [binary_data_size]")
    return asked, bytes(content[length:])


async def _answer(service: Service, caller: Caller, job: JobStatus) -> bytes:
    """The answer to a job, once it is there."""
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + service.infer_seconds, POLL_SECONDS
    while job.state not in FINISHED:
        if service.stopping or loop.time() > end:
            raise Refusal(
                503 if service.stopping else 504,
                "the answer is not there yet",
                why=f"the job {job.id} goes on",
                remedy=f"ask for it at /jobs/{job.id}, or send the same query again",
                retry_after=max(1.0, job.wait_seconds or 0.0),
            )
        await asyncio.sleep(pause)
        pause = min(1.2 * pause, SLOWEST_POLL)
        job = await run_in_threadpool(service.jobs.status, caller.tenant, job.id)
    path = await run_in_threadpool(service.jobs.answer, caller.tenant, job.id)
    return await run_in_threadpool(path.read_bytes)


def _response(served: Served, asked: Inference, job: JobStatus, content: bytes) -> Response:
    size = len(content)
    told = {
        "model_name": served.model,
        "model_version": served.program,
        "id": asked.id or job.id,
        "outputs": [
            {"name": "answer", "datatype": "UINT8", "shape": [size],
             "parameters": {"binary_data_size": size}}
        ],
    }  # fmt: skip
    header = json.dumps(told).encode()
    return Response(header + content, media_type=BYTES, headers={HEADER: str(len(header))})
