"""This machine: its class, its memory and disk, and its other work while something is measured."""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT, Count

GIB = 2.0**30


@dataclass(frozen=True)
class Machine:
    """A class of machines.

    Attributes:
        processor: its model.
        threads: how many this process may use.
        memory_gib: of the whole machine; it decides what runs, not how fast.
    """

    __pydantic_config__ = STRICT

    processor: str
    threads: Count
    memory_gib: Annotated[float, Field(gt=0)]

    def __str__(self) -> str:
        return f"{self.threads} threads of {self.processor}"

    def same_speed(self, other: Machine) -> bool:
        """Whether times of one may be expected on the other."""
        return (self.processor, self.threads) == (other.processor, other.threads)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def available_threads() -> int:
    """Threads that this process may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine(root: Path = Path("/")) -> Machine:
    """The machine that this process runs on.

    Args:
        root: where ``proc`` is found; another folder in tests.
    """
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        pages = 0
    return Machine(_processor(root), available_threads(), round(pages / GIB, 1))


def _processor(root: Path) -> str:
    """The model's name; virtual machines shorten it, so family and number go with it."""
    facts: dict[str, str] = {}
    try:
        for line in (root / "proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    if "model name" not in facts:
        return platform.processor() or platform.machine()
    numbers = [f"{name} {facts[name]}" for name in ("cpu family", "model") if name in facts]
    return ", ".join([facts["model name"], *numbers]).replace("cpu family", "family")


class OtherWork:
    """How much of the machine other processes took since this was made."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._now()

    def share(self) -> float | None:
        """From 0 (none) to 1 (all processors, always); None where the system does not tell."""
        before, now = self._before, self._now()
        if before is None or now is None:
            return None
        busy, idle, own, wall = (b - a for a, b in zip(before, now, strict=True))
        if wall <= 0 or busy + idle <= 0:
            return None
        return min(max((busy - own) / (busy + idle), 0.0), 1.0)

    def _now(self) -> tuple[float, float, float, float] | None:
        """Seconds of all processors, busy and idle; of this process; of the clock."""
        try:
            line = (self._root / "proc/stat").read_text().partition("\n")[0]
            ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in line.split()[1:9]]
        except (OSError, ValueError, AttributeError):
            return None
        idle = sum(ticks[3:5])
        used = os.times()
        return sum(ticks) - idle, idle, used.user + used.system, time.perf_counter()


# --- memory and disk, asked before a long job starts rather than when it is killed


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
    """Refuse to start what would not fit on the disk of ``folder``, which may not exist yet."""
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
