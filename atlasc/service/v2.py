"""The Open Inference Protocol, version 2, with its extension for binary tensors.

A query is one UINT8 tensor ``query`` and an answer one UINT8 tensor ``answer``, whose bytes follow
the JSON: ciphertexts are bytes to everybody but the client. A version of a model is the identity of
its program. Beside it, a client finds its part of the bundle under ``client/``.

Clients of the protocol show the member ``error`` of a refusal alone, so that of ``infer``
has the reason and the remedy too.
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
from atlasc.service.faults import Refusal, fault_of, refusal_of
from atlasc.service.intake import accept_query
from atlasc.service.programs import Served
from atlasc.service.requests import (
    MOST_VALUES,
    Anyone,
    Asking,
    Here,
    Service,
    body_parts,
    response_of,
)
from atlasc.service.tokens import Caller
from atlasc.version import __version__

router = APIRouter(prefix="/v2")
HEADER = "inference-header-content-length"
MAX_HEADER = 64 * KIB
POLL_SECONDS, SLOWEST_POLL = 0.05, 1.0
BINARY = (
    "use the extension binary_tensor_data of the protocol (tritonclient: "
    "set_data_from_numpy(query, binary_data=True))"
)
"""What to do in place of JSON tensors."""


class Loose(BaseModel):
    """Members that are not read are ignored, as the protocol asks."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class Tensor(Loose):
    """A tensor of a request."""

    name: str
    datatype: str
    shape: list[Count]
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    data: JsonValue = None


class Wanted(Loose):
    """An output that a request names."""

    name: str


class Inference(Loose):
    """The JSON of a request."""

    id: str | None = None
    inputs: list[Tensor]
    outputs: list[Wanted] = Field(default_factory=list)
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
    versions = [one.program for one in service.programs.listed if one.model == model]
    tensor = {"datatype": "UINT8", "shape": [-1]}
    return {
        "name": model, "versions": [version] if version else versions,
        "platform": f"atlasc_{found.bundle.target}",
        "inputs": [{"name": "query", **tensor}], "outputs": [{"name": "answer", **tensor}],
    }  # fmt: skip


@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
def model_ready(service: Here, caller: Anyone, model: str, version: str = "") -> JSONResponse:
    """Whether a model is answered here now; 503 while no worker takes jobs."""
    service.programs.of_model(model, version)
    good = service.ready
    return JSONResponse({"name": model, "ready": good}, 200 if good else 503)


@router.get("/models/{model}/versions/{version}/client/{name:path}")
def client_file(service: Here, caller: Anyone, model: str, version: str, name: str) -> FileResponse:
    """A file of the client's part of the bundle; ``manifest.json`` lists them with digests. Of a
    text with a prefill also those of the prefill, below ``whole/``.
    """
    path = service.programs.of_model(model, version).client_file(name)
    return FileResponse(path, media_type=BYTES)


@router.post("/models/{model}/infer")
@router.post("/models/{model}/versions/{version}/infer")
async def infer(
    service: Here, caller: Asking, request: Request, model: str, version: str = ""
) -> Response:
    """Answer a query, and wait for it. The job goes on if the client does not."""
    try:
        return await _infer(service, caller, request, model, version)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        told = "; ".join(filter(None, (refusal.what, refusal.why, refusal.remedy)))
        return response_of(refusal, fault_of(refusal).model_copy(update={"error": told}))


async def _infer(
    service: Service, caller: Caller, request: Request, model: str, version: str
) -> Response:
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
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding != "identity":
        raise Refusal(
            415,
            "the request is compressed",
            why=f"its Content-Encoding is {coding[:20]!r}; ciphertexts do not become smaller",
            remedy="send it as it is (tritonclient: leave request_compression_algorithm out)",
        )
    length = whole_number(request.headers.get(HEADER, ""))
    if not length:
        raise Refusal(
            400,
            "the query is not sent as a binary tensor",
            why=f"the header {HEADER} is missing, so that tensors would be JSON",
            remedy=BINARY,
        )
    if length > MAX_HEADER:
        why = f"it has {length} bytes; at most {MAX_HEADER} are taken"
        raise Refusal(400, "the JSON of the request is too large", why=why, remedy=BINARY)
    content = bytearray()
    while len(content) < length:
        part = await anext(parts, b"")
        if not part:
            break
        content += part
    try:
        asked = parse_json(bytes(content[:length]), Inference, MOST_VALUES)
    except ValueError as error:
        raise Refusal(
            400, "the JSON of the request cannot be read", why=str(error), remedy=BINARY
        ) from None
    _require_query(asked)
    return asked, bytes(content[length:])


def _require_query(asked: Inference) -> None:
    """Refuse tensors that are not one query.

    Raises:
        Refusal: with what was sent, and what to send.
    """
    given = ", ".join(f"{one.name[:40]} ({one.datatype[:20]})" for one in asked.inputs[:4])
    if [(one.name, one.datatype) for one in asked.inputs] != [("query", "UINT8")]:
        raise Refusal(
            400,
            "a request has one input, the UINT8 tensor query",
            why=f"this one has {given or 'none'}",
            remedy="send the bytes of one encrypted query (atlasc.Client.encrypt): inputs in the "
            "clear are not taken here",
        )
    if unknown := [one.name[:40] for one in asked.outputs if one.name != "answer"]:
        why = f"the request names {unknown[0]!r}; which it is, only the client can see"
        raise Refusal(400, "there is one output, answer", why=why, remedy="ask for answer")
    (query,) = asked.inputs
    size = query.parameters.get("binary_data_size")
    if query.data is not None or size is None:
        why = "it has numbers in the JSON" if query.data is not None else "it has no bytes"
        raise Refusal(400, "the query is not sent as a binary tensor", why=why, remedy=BINARY)
    if query.shape != [size] or isinstance(size, bool):
        raise Refusal(
            400,
            "the tensor query must have one axis, its bytes",
            why=f"its shape is {query.shape[:8]}, and binary_data_size {str(size)[:20]}",
            remedy="send the shape [binary_data_size], without an axis for a batch: the inputs of "
            "a batch are inside the ciphertext",
        )


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
