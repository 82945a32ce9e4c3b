"""What this machine has, asked before a long job starts rather than when it is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

from atlasc.ir.errors import AtlasError

GIB = 2.0**30


def available_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that a process can still allocate: free memory, and the control group's limit.

    Args:
        root: where ``proc`` and ``sys`` are found; another folder in tests.

    Returns:
        None where the system does not tell (not Linux).
    """
    limits = [_meminfo(root, "MemAvailable"), _control_group(root / "sys/fs/cgroup")]
    return min((value for value in limits if value), default=None)


def machine_bytes(root: Path = Path("/")) -> int | None:
    """Bytes of the whole machine, whatever runs on it now; the control group's limit if smaller.

    Args and returns as :func:`available_bytes`.
    """
    limits = [_meminfo(root, "MemTotal"), _limit(root / "sys/fs/cgroup")]
    return min((value for value in limits if value), default=None)


def _meminfo(root: Path, entry: str) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{entry}:"):
            return int(line.split()[1]) * 1024
    return None


def _limit(folder: Path) -> int | None:
    try:
        return int((folder / "memory.max").read_text())
    except (OSError, ValueError):  # "max" stands for none
        return None


def _control_group(folder: Path) -> int | None:
    limit = _limit(folder)
    try:
        used = int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit is None else max(1, limit - used)


def require_memory(needed: int, purpose: str) -> None:
    """Refuse to start what would not fit.

    Args:
        needed: bytes.
        purpose: what needs them, to complete "not enough memory for ...".

    Raises:
        AtlasError: with the needed and the available GiB. Says nothing where the system does not
            tell what is available.
    """
    available = available_bytes()
    if available is not None and needed > available:
        raise AtlasError(
            f"not enough memory for {purpose}",
            why=f"{needed / GIB:.1f} GiB are needed, {available / GIB:.1f} GiB are available",
            remedy="close other programs, use a machine with more memory, or compile with fewer "
            "levels or a smaller --key-memory",
        )


def require_disk(needed: int, folder: Path, purpose: str) -> None:
    """The same for the disk that holds ``folder``, which may not exist yet."""
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise AtlasError(
            f"not enough disk space for {purpose}",
            where=str(folder),
            why=f"{needed / GIB:.1f} GiB are needed, {free / GIB:.1f} GiB are free",
            remedy="free some space or choose another output directory",
        )
