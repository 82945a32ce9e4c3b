"""The service's own endpoints: ``/config``, ``/keys``, ``/jobs`` and ``/metrics``."""

from __future__ import annotations

import base64

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse

from atlasc.remote.wire import CHUNK, Config, JobStatus, KeyStatus, NewKey
from atlasc.service.faults import Refusal
from atlasc.service.intake import accept_query
from atlasc.service.requests import (
    Anyone,
    Asking,
    Here,
    Keeping,
    Place,
    Watching,
    json_body,
    require_length,
    whole_body,
)
from atlasc.version import __version__

router = APIRouter()
BYTES = "application/octet-stream"


@router.get("/config")
def config(service: Here, caller: Anyone) -> Config:
    """What is answered here, and the caller's keys."""
    jobs = service.jobs
    return Config(
        atlasc=__version__, chunk_bytes=CHUNK,
        programs=tuple(one.facts(jobs.seconds(one.program)) for one in service.programs.listed),
        keys=service.uploads.all(caller.tenant),
        queued=jobs.waiting(), wait_seconds=jobs.wait_seconds(),
    )  # fmt: skip


@router.get("/keys")
def keys(service: Here, caller: Keeping) -> tuple[KeyStatus, ...]:
    """The caller's keys and uploads."""
    return service.uploads.all(caller.tenant)


@router.post("/keys", status_code=201)
async def begin_upload(service: Here, caller: Keeping, request: Request) -> KeyStatus:
    """Announce an upload of evaluation keys, or find one that was begun."""
    with service.at_once("bodies", caller.tenant):
        new = await json_body(request, NewKey)
    return await run_in_threadpool(service.uploads.begin, caller.tenant, new)


@router.get("/keys/{key}")
def key_status(service: Here, caller: Keeping, key: str) -> KeyStatus:
    """How far an upload is."""
    return service.uploads.one(caller.tenant, key)


@router.put("/keys/{key}")
async def add_chunk(
    service: Here, caller: Keeping, request: Request, key: str, offset: Place
) -> KeyStatus:
    """Add the next chunk, whose SHA-256 is in the header ``Content-Digest`` (RFC 9530)."""
    require_length(request, CHUNK)
    digest = _digest(request.headers.get("content-digest", ""))
    with service.at_once("chunks", caller.tenant):
        chunk = await whole_body(request, CHUNK)
        add = service.uploads.add
        return await run_in_threadpool(add, caller.tenant, key, offset, chunk, digest)


@router.delete("/keys/{key}", status_code=204)
def delete_key(service: Here, caller: Keeping, key: str) -> None:
    """Remove keys from the disk and from memory."""
    service.uploads.delete(caller.tenant, key)
    service.runner.forget(key)


@router.get("/jobs")
def jobs(service: Here, caller: Asking) -> list[JobStatus]:
    """The caller's jobs, the oldest first."""
    return service.jobs.all(caller.tenant)


@router.post("/jobs", status_code=202)
async def submit(
    service: Here, caller: Asking, request: Request, keys: str = "", program: str = ""
) -> JobStatus:
    """Accept a query, the body of the request. The same query again is the same job."""
    return await accept_query(service, caller, request, keys=keys, program=program)


@router.get("/jobs/{job}")
def job_status(service: Here, caller: Asking, job: str) -> JobStatus:
    """State, progress and predicted wait of a job."""
    return service.jobs.status(caller.tenant, job)


@router.get("/jobs/{job}/answer")
def answer(service: Here, caller: Asking, job: str) -> FileResponse:
    """The encrypted answer, as often as it is asked for."""
    return FileResponse(service.jobs.answer(caller.tenant, job), media_type=BYTES)


@router.delete("/jobs/{job}", status_code=204)
def cancel(service: Here, caller: Asking, job: str) -> None:
    """Cancel a job; of one that is finished, delete the answer."""
    if service.jobs.cancel(caller.tenant, job):
        service.runner.cancel(job)


@router.get("/metrics")
def metrics(service: Here, caller: Watching) -> Response:
    """Figures of the whole service for Prometheus; needs the scope ``metrics``."""
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _digest(header: str) -> bytes:
    """The SHA-256 of ``Content-Digest: sha-256=:...:``."""
    name, _, value = header.strip().partition("=")
    try:
        found = base64.b64decode(value.strip(":"), validate=True)
    except ValueError:  # not Base64, or not even ASCII
        found = b""
    if name.lower() != "sha-256" or len(found) != 32:
        raise Refusal(
            400,
            "the chunk has no digest",
            remedy="send the header Content-Digest: sha-256=:BASE64: of the chunk",
        )
    return found
