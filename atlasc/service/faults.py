"""Refusals of the service: an HTTP status and the aspects of an ``AtlasError``."""

from __future__ import annotations

import os
import sqlite3

from atlasc.api.errors import FULL
from atlasc.ir.errors import AtlasError
from atlasc.remote.wire import Fault


class Refusal(AtlasError):
    """A request that is refused.

    Attributes:
        status: the HTTP status.
        retry_after: seconds after which the same request may succeed; None if it will not.
    """

    def __init__(
        self,
        status: int,
        what: str,
        *,
        why: str = "",
        remedy: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(what, why=why, remedy=remedy)
        self.status, self.retry_after = status, retry_after


def fault_of(error: AtlasError) -> Fault:
    """An error as it is sent. Places of the server's disk are not the client's business."""
    return Fault(error=error.what, why=error.why, remedy=error.remedy)


def refusal_of(error: Exception) -> Refusal | None:
    """The refusal that an error of a request means; None for a fault of the service itself."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, AtlasError):
        if _full(error.why):
            return disk_full()
        return Refusal(400, error.what, why=error.why, remedy=error.remedy)
    if isinstance(error, OSError) and error.errno in FULL:
        return disk_full()
    if isinstance(error, sqlite3.OperationalError):
        if "full" in str(error):
            return disk_full()
        if "locked" in str(error):
            return Refusal(503, "the service is busy", remedy="try again", retry_after=1)
    return None


def disk_full() -> Refusal:
    """The refusal where the server's disk is full."""
    return Refusal(
        507,
        "the server's disk is full",
        why="nothing of this request was kept",
        remedy="try again later, or ask whoever runs the service to make room",
        retry_after=60,
    )


def _full(why: str) -> bool:
    return any(os.strerror(code) in why for code in FULL)
