"""What client and service say to each other, as JSON objects with a schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field

from atlasc.ir.files import MIB, Amount, Count, Schema, Sha256

MAX_JSON = 16 * MIB
"""Most bytes of a JSON object."""
MAX_VALUES = 50_000
"""Most values in it; the list of a tenant's jobs has some ten thousand."""
CHUNK = 8 * MIB
"""Most bytes of one chunk of an upload."""
LEAST_CHUNK = 1 << 16
"""Least bytes that a service may ask for: with fewer an upload would never end."""
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
WHOLE = "whole/"
"""Before names of files of the bundle with a step and a prefill, among those of the step."""
FINISHED: tuple[JobState, ...] = ("done", "failed", "cancelled")
Name = Annotated[str, Field(max_length=200)]
Id = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=100_000)]


class Fault(Schema):
    """Why a request was refused, or a job failed; the aspects of an ``AtlasError``."""

    error: Text
    where: Text = ""
    why: Text = ""
    remedy: Text = ""


class NewKey(Schema):
    """An upload of evaluation keys, announced before its first byte.

    Attributes:
        configuration: see :func:`atlasc.targets.key_folders.configuration_of`.
        size: bytes of the file.
        sha256: digest of the file; it names the upload and later the keys.
    """

    configuration: Sha256
    size: Count
    sha256: Sha256


class KeyStatus(Schema):
    """Keys of the caller.

    Attributes:
        id: SHA-256 of the file.
        received: bytes that are safe on the server's disk; an upload goes on there.
        ready: whether the file is whole and checked.
    """

    id: Sha256
    configuration: Sha256
    size: Count
    received: Count
    ready: bool


class ProgramFacts(Schema):
    """A version of a model that the service answers.

    Attributes:
        program: identity of the program; the version in the Open Inference Protocol.
        bundle: identity of the whole bundle.
        configuration: of its keys.
        query_bytes, answer_bytes, key_bytes: bytes of a query of a whole batch, of its answer, and
            of the file of evaluation keys: exact, or most where the target cannot tell.
        seconds: of one answer: measured, or predicted before the first; None if neither is known.
    """

    model: Name
    program: Sha256
    bundle: Sha256
    target: Name
    batch: Count
    sequence_length: Count | None
    configuration: Sha256
    query_bytes: Count
    answer_bytes: Count
    key_bytes: Count
    seconds: Amount | None


class Config(Schema):
    """What a client needs to know before it sends anything.

    Attributes:
        atlasc: version of the service.
        chunk_bytes: most bytes of a chunk; the client sends at most ``CHUNK``.
        programs: all programs; of several versions of a model, the current one first.
        keys: the caller's keys.
        queued: jobs that wait, of all tenants.
        wait_seconds: predicted wait of a job that is sent now.
    """

    atlasc: Name
    chunk_bytes: Annotated[int, Field(ge=LEAST_CHUNK, le=2**53)]
    programs: Annotated[tuple[ProgramFacts, ...], FailFast()]
    keys: Annotated[tuple[KeyStatus, ...], FailFast()]
    queued: Count
    wait_seconds: Amount


class JobStatus(Schema):
    """A job of the caller.

    Attributes:
        query: name of the query, which the answer repeats.
        done: hundredths of the predicted work.
        ahead: jobs that run or start before this one.
        wait_seconds: predicted seconds until the answer; None once it is finished.
        answer_bytes: bytes of the answer; 0 before it is there.
        fault: why the job failed.
    """

    id: Id
    state: JobState
    program: Sha256
    query: Name
    done: Count
    ahead: Count
    wait_seconds: Amount | None
    answer_bytes: Count
    fault: Fault | None
