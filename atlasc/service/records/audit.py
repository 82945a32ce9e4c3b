"""Who added, revoked, uploaded and deleted: a file that grows by lines, and in no other way.

Each line has the SHA-256 of the line before it, so that a line that was changed or taken out of the
middle shows. Lines name tenants and ids; never a token, a key or an input. Who may write the folder
can still shorten the file: copy it elsewhere, or let the kernel forbid it (``chattr +a``).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path

AUDIT = "audit.jsonl"
_TAIL = 1 << 16
"""Bytes in which the last line lies."""


class Audit:
    """The audit of a service's folder; for several processes at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / AUDIT

    def note(self, event: str, by: str, **facts: object) -> None:
        """Add a line, which is on the disk when this returns.

        Args:
            event: such as ``token added``.
            by: who did it: ``tenant NAME``, ``service``, or a user of the machine.
            facts: further members of the line.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            tail = file.read()
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event,
                "by": by, **facts, "before": _digest(tail.rstrip(b"\n").rpartition(b"\n")[2]),
            }  # fmt: skip
            cut = b"" if tail.endswith(b"\n") or not tail else b"\n"  # of a disk that was full
            file.write(cut + json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())

    def faults(self) -> list[int]:
        """Numbers of the lines, from 1, that do not follow the line before them."""
        if not self.path.exists():
            return []
        found, before = [], b""
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    right = json.loads(line)["before"] == _digest(before)
                except (ValueError, KeyError, TypeError, RecursionError):
                    right = False
                if not right:
                    found.append(number)
                before = line.rstrip(b"\n")
        return found


def operator() -> str:
    """The user of this machine who gave a command."""
    return f"user {os.getuid()}"


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
