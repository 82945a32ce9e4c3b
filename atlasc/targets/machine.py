"""This machine: its class, memory, disk, and other work; and core dumps of this process.

``root`` is the folder that contains ``proc`` and ``sys``; tests give another folder.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import STRICT, Count

GIB = 2.0**30
ROOT = Path("/")


@dataclass(frozen=True)
class Machine:
    """A class of machines.

    Attributes:
        processor: model of the processor.
        threads: number of threads that this process may use.
        memory_gib: memory of the whole machine in GiB; it decides what runs, not how fast.
    """

    __pydantic_config__ = STRICT

    processor: str
    threads: Count
    memory_gib: Annotated[float, Field(gt=0)]

    def __str__(self) -> str:
        return f"{self.threads} threads of {self.processor}"


def forbid_core_dumps() -> None:
    """Prevent core dumps of this process, because its memory holds a secret key.

    A limit of size alone is not enough: the kernel ignores it if it pipes core dumps to a program.
    Without privileges, no debugger can then attach to the process, either.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    set_dumpable = 4  # PR_SET_DUMPABLE
    with suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(set_dumpable, 0, 0, 0, 0)


def share_memory_of_threads() -> None:
    """Let all threads of this process allocate from two pools, so that memory which one freed is
    used by another. glibc would make eight pools a processor and keep each as large as it was.
    """
    most_pools = -8  # M_ARENA_MAX
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).mallopt(most_pools, 2)


def available_threads() -> int:
    """Number of threads that this process may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine(root: Path = ROOT) -> Machine:
    """The class of the machine that this process runs on."""
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        pages = 0
    # Virtual machines shorten the name of the model, so family and number are added; on aarch64
    # there are numbers alone.
    names = {"family ": "cpu family", "model ": "model"}
    names |= {"implementer ": "CPU implementer", "part ": "CPU part"}
    processor = _fact(root, "model name") or platform.processor() or platform.machine()
    facts = ((kind, _fact(root, name)) for kind, name in names.items())
    processor = ", ".join((processor, *(f"{kind}{fact}" for kind, fact in facts if fact)))
    return Machine(processor, available_threads(), round(pages / GIB, 1))


def _fact(root: Path, name: str) -> str:
    """What the kernel says of the first processor; empty where it does not."""
    return _read(root / "proc/cpuinfo", rf"{name}\s*:[ \t]*(.*)").strip()


class OtherWork:
    """Measures how much of the machine other processes take from its creation on."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._before = self._now()

    def share(self) -> float | None:
        """Share from 0 (none) to 1 (all processors, always); None if the system does not tell."""
        before, now = self._before, self._now()
        if before is None or now is None:
            return None
        busy, idle, own = (b - a for a, b in zip(before, now, strict=True))
        if busy + idle <= 0:
            return None
        return min(max((busy - own) / (busy + idle), 0.0), 1.0)

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds that all processors were busy and idle, and that this process used."""
        try:
            line = (self._root / "proc/stat").read_text().partition("\n")[0]
            ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in line.split()[1:9]]
        except (OSError, ValueError, AttributeError):
            return None
        idle, used = sum(ticks[3:5]), os.times()
        return sum(ticks) - idle, idle, used.user + used.system


# --- memory and disk, asked before a long job starts rather than when it is killed


def available_bytes() -> int | None:
    """Bytes that this process can still allocate: the least of free memory, the control group's
    limit and the process's own (``ulimit -v``). None if the system does not tell (not Linux)."""
    limit, used = (_number(ROOT / f"sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    free = _number(ROOT / "proc/meminfo", "MemAvailable:") * 1024
    own, taken = _address_space(), _number(ROOT / "proc/self/status", "VmSize:") * 1024
    return _least(
        free, *(max(1, most - now) for most, now in ((limit, used), (own, taken)) if most)
    )


def _address_space() -> int:
    """Bytes that this process may map in total; 0 for no limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 0 if most == resource.RLIM_INFINITY else most


def machine_bytes(root: Path = ROOT) -> int | None:
    """Bytes of the whole machine, whatever runs on it; the control group's limit if that is
    smaller. None if the system does not tell."""
    whole = _number(root / "proc/meminfo", "MemTotal:") * 1024
    return _least(whole, _number(root / "sys/fs/cgroup/memory.max"))


def _least(*sizes: int) -> int | None:
    return min(filter(None, sizes), default=None)


def _number(path: Path, entry: str = "") -> int:
    return int(_read(path, rf"{entry}\s*(\d+)") or 0)


def _read(path: Path, pattern: str) -> str:
    """The first group of a pattern at the start of a line; empty without the file or such a
    line.
    """
    try:
        found = re.search(rf"^{pattern}", path.read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def require_memory(needed: int, purpose: str) -> None:
    """Refuse work for which memory is too small.

    Args:
        needed: bytes that are needed.
        purpose: completes the message "not enough memory for ...".

    Raises:
        AtlasError: memory is too small; the error has the needed and the available GiB. If the
            system does not tell the available memory, nothing is refused.
    """
    available = available_bytes()
    if available is not None and needed > available:
        raise AtlasError(
            f"not enough memory for {purpose}",
            why=f"{needed / GIB:.1f} GiB are needed, but {available / GIB:.1f} GiB are available",
            remedy="close other programs, use a machine with more memory, or compile with fewer "
            "levels or a smaller key-memory of --target",
        )


def require_disk(needed: int, folder: Path, purpose: str) -> None:
    """Refuse work for which the disk of ``folder`` is too small; the folder need not exist yet."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise AtlasError(
            f"not enough disk space for {purpose}",
            where=str(folder),
            why=f"{needed / GIB:.1f} GiB are needed, but {free / GIB:.1f} GiB are free",
            remedy="free some space or choose another output directory",
        )
