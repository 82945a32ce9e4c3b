"""From the bytes of a query to a job: first whose program it is, then how large, then the rest.

The header of a query, within its first megabyte, names program and query. A query of a program that
is not served is refused before more of it is taken, and no keys are loaded for any check here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from atlasc.bundle.messages import Message
from atlasc.bundle.sealed import LENGTH, header_bytes, sealed_facts
from atlasc.remote.wire import JobStatus
from atlasc.service.faults import Refusal
from atlasc.service.jobs import QUERY
from atlasc.service.programs import Served
from atlasc.service.requests import Service, body_parts, require_length, too_large
from atlasc.service.tokens import Caller


async def accept_query(
    service: Service,
    caller: Caller,
    request: Request,
    *,
    keys: str,
    program: str = "",
    before: bytes = b"",
    parts: AsyncIterator[bytes] | None = None,
) -> JobStatus:
    """Take a query, and make a job of it that is on the disk when this returns.

    Args:
        keys: id of the caller's keys; empty if the caller has one fitting set only.
        program: identity of the program that the query must be for; empty: any that is served.
        before: bytes of the query that were read already.
        parts: the rest of the query; by default the body of the request.

    Raises:
        Refusal: 409 for another program, keys or query of this name; 413 for a size, 429 for a
            queue that is full; 400 for a query that is damaged.
    """
    if program:
        service.programs.by_program(program)
    with service.at_once("bodies", caller.tenant):
        rest = body_parts(request) if parts is None else parts
        head = bytearray(before)
        while len(head) < LENGTH or len(head) < header_bytes(bytes(head[:LENGTH])):
            part = await anext(rest, b"")
            if not part:
                break
            head += part
        facts = sealed_facts(bytes(head))
        if facts.get("kind") != "query":
            raise Refusal(400, "this is no query", why=f"it is {facts.get('kind') or 'unknown'}")
        served = service.programs.by_program(facts.get("program", ""))
        if program and served.program != program:
            raise Refusal(409, "the query is for another program than the request")
        require_length(request, served.query_bytes)
        known = await run_in_threadpool(service.jobs.find, caller.tenant, facts.get("query", ""))
        key = await run_in_threadpool(_chosen_keys, service, caller, served, keys)
        if known is None:
            room = service.jobs.require_room
            # The keys and values of a text are written beside those before.
            await run_in_threadpool(room, caller.tenant, len(head) + served.text_bytes)
        folder = await run_in_threadpool(service.jobs.new_folder)
        try:
            await _write(folder / QUERY, bytes(head), rest, served.query_bytes)
            status = await run_in_threadpool(_checked, service, caller, served, key, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    service.runner.wake()
    return status


def _chosen_keys(service: Service, caller: Caller, served: Served, keys: str) -> str:
    fitting = [
        one.id
        for one in service.uploads.all(caller.tenant)
        if one.ready and one.configuration == served.configuration
    ]
    if keys and keys in fitting:
        return keys
    if not keys and len(fitting) == 1:
        return fitting[0]
    if keys:
        service.uploads.one(caller.tenant, keys)
    raise Refusal(
        409,
        "there are no whole keys of yours here for this program"
        if keys or not fitting
        else "you have several keys for this program",
        remedy="upload them: POST /keys" if keys or not fitting else "name one of them",
    )


async def _write(path: Path, head: bytes, rest: AsyncIterator[bytes], limit: int) -> None:
    size = len(head)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if size > limit:
            raise too_large(limit)
        file.write(head)
        async for part in rest:
            size += len(part)
            if size > limit:
                raise too_large(limit)
            await run_in_threadpool(file.write, part)
        file.flush()
        await run_in_threadpool(os.fsync, file.fileno())


def _checked(service: Service, caller: Caller, served: Served, key: str, folder: Path) -> JobStatus:
    """Check the whole query as the server's role does, and accept it."""
    with service.checks:
        content = (folder / QUERY).read_bytes()
        query = Message.read(content, "query", served.bundle).query
        digest = hashlib.sha256(content).hexdigest()
    return service.jobs.accept(caller.tenant, folder, served.program, key, query, digest)
