"""Gives inputs to a reader in a process of its own, under limits of time and memory.

A failure is whatever a reader of somebody else's files may not do: raise anything but AtlasError,
take too long or too much memory, die, print, put control characters into a message, or accept a
content that means something else.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import mmap
import os
import re
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError
from tests.fuzz.content import Content, Place
from tests.fuzz.reader import Reader

MEMORY = 1 << 30
"""Bytes that the reading of a file may take beside what was in use before."""
SECONDS = 10
"""Processor time of one input; it may wait five times as long."""
ADDRESSES = 2 << 30
"""Address space beside what was in use: a fence against what takes much more than MEMORY."""
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""What makes ``VmHWM`` start again from the memory in use: see proc_pid_clear_refs(5)."""
_IN_USE = re.compile(rb"VmHWM:\s*(\d+).*VmRSS:\s*(\d+)", re.DOTALL)
RESETS = 20
"""Times that it is tried before an input."""

ROOT = str(Path(__file__).resolve().parents[2])
HARMFUL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""What the text of an error may not hold: control characters but line breaks, and half characters,
which cannot be printed."""
BROKEN = "the fuzzer failed"
_FOREIGN = re.compile(r"/tests/|/site-packages/")
WAITED = "hang: waiting"
_STOPPED = {signal.SIGPROF: "hang", signal.SIGALRM: WAITED, signal.SIGKILL: "killed"}


@dataclass(frozen=True)
class Failure:
    """One input that went wrong.

    Attributes:
        number: of the input.
        kind: the exception, or what else it did.
        place: the innermost line of atlasc, or of the fuzzer where none is known.
        detail: message or traceback.
    """

    number: int
    kind: str
    place: str
    detail: str


class Counts:
    """What a worker did so far, in memory that it shares with its parent."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 24)

    def write(self, number: int, accepted: int, refused: int) -> None:
        """The input in work, and what became of those before."""
        self._shared[:] = struct.pack("<qqq", number, accepted, refused)

    def read(self) -> tuple[int, int, int]:
        """The same three."""
        return struct.unpack("<qqq", self._shared[:])


def run(
    reader: Reader, inputs: Iterable[tuple[int, Content]], meanings: list[Any], place: Path
) -> tuple[list[Failure], int, int, int]:
    """Give inputs to a forked process.

    Args:
        reader: what reads them.
        inputs: (number, content), in ascending order.
        meanings: what the reader makes of the seeds.
        place: an empty folder for the files.

    Returns:
        Failures; how many inputs were accepted and refused; the number of the last one begun.
    """
    counts = Counts()
    counts.write(-1, 0, 0)
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        code = 1
        try:
            _work(reader, inputs, meanings, place, counts, sender)
            code = 0
        except BaseException:
            trouble = Failure(counts.read()[0], BROKEN, "", traceback.format_exc())
            _send(sender, trouble)
        finally:
            os._exit(code)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        failures = [Failure(**json.loads(line)) for line in pipe if line.endswith("\n")]
    status = os.waitpid(child, 0)[1]
    number, accepted, refused = counts.read()
    if os.WIFSIGNALED(status):
        stop = os.WTERMSIG(status)
        kind = _STOPPED.get(signal.Signals(stop), f"crash: {signal.Signals(stop).name}")
        failures.append(Failure(number, kind, reader.name, f"ended by signal {stop}"))
    elif status and not any(f.kind == BROKEN for f in failures):
        failures.append(Failure(number, "crash: exit", reader.name, f"status {status}"))
    return failures, accepted, refused, number


def _work(
    reader: Reader,
    inputs: Iterable[tuple[int, Content]],
    meanings: list[Any],
    root: Path,
    counts: Counts,
    sender: int,
) -> None:
    printed = os.memfd_create("printed")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
    faulthandler.disable()
    # A warning is shown once a place by default: what is printed would depend on inputs before.
    warnings.simplefilter("always", RuntimeWarning)
    for alarm in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(alarm, signal.SIG_DFL)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * mmap.PAGESIZE + ADDRESSES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What the parent let go, or what this process lets go of it, would hide what an input takes.
    gc.freeze()
    _give_back()
    place, accepted, refused = Place(root), 0, 0
    for number, content in inputs:
        counts.write(number, accepted, refused)
        path = place.put(content)
        before = _reset_peak()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, 5 * SECONDS)
        failure = judge(reader, path, meanings)
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
        if failure is None:
            accepted += 1
        elif failure == REFUSED:
            refused += 1
        else:
            _send(sender, Failure(number, *failure))
        sys.stdout.flush()
        sys.stderr.flush()
        if size := os.lseek(printed, 0, os.SEEK_CUR):
            text = os.pread(printed, min(size, 4000), 0).decode("utf-8", "replace")
            _send(sender, Failure(number, "output", _printed_by(text), text))
            os.ftruncate(printed, 0)
            os.lseek(printed, 0, os.SEEK_SET)
        if (taken := _memory()[0] - before) > MEMORY:
            _send(sender, Failure(number, "memory", reader.name, f"{taken >> 20} MiB"))
            _give_back()
    counts.write(1 << 62, accepted, refused)


REFUSED = ("refused", "", "")


def judge(reader: Reader, path: Path, meanings: list[Any]) -> tuple[str, str, str] | None:
    """None for an input that is accepted, REFUSED, or (kind, place, detail) of a failure."""
    try:
        meaning = reader.read(path)
        if reader.same is None or reader.same(meanings, meaning):
            return None
        return "accepted with another meaning", reader.name, repr(meaning)[:1000]
    except AtlasError as error:
        if HARMFUL.search(error.render()):
            return "control characters", innermost(error), ascii(error.render())[:1000]
        if any(isinstance(one, MemoryError) for one in _chain(error)):
            return "memory", innermost(error), error.render()[:1000]
        return REFUSED
    except Exception as error:
        lines = traceback.format_exception(error)
        text = "".join(lines)
        if len(text) > 6000:
            text = f"{text[:2000]}\n...\n{text[-4000:]}"
        return type(error).__name__, innermost(error), text


def innermost(error: BaseException) -> str:
    """File and line of the innermost frame of atlasc that an exception went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(ROOT) and not _FOREIGN.search(f.filename)]
    frame = (own or list(frames))[-1]
    return f"{os.path.relpath(os.path.realpath(frame.filename), ROOT)}:{frame.lineno}"


def _chain(error: BaseException) -> Iterable[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _give_back() -> None:
    """Give free memory back to the system, which a library may have told the allocator to keep: the
    next input would get it, and would seem to take none.
    """
    with contextlib.suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> int:
    """``VmHWM`` once it starts again from the memory in use; on a kernel that cannot do that, the
    most so far, so that what is added counts.
    """
    for _ in range(RESETS):
        with contextlib.suppress(OSError):
            CLEAR_REFS.write_text(RESET_PEAK)
        peak, now = _memory()
        if peak - now < MEMORY // 4:
            break
        time.sleep(0.01)  # counts of a processor that is busy come late
    return peak


def _memory() -> tuple[int, int]:
    """Bytes that Linux counts for this process: the most since it was reset, and those in use."""
    found = _IN_USE.search(STATUS.read_bytes())
    assert found is not None
    return int(found[1]) << 10, int(found[2]) << 10


def _printed_by(text: str) -> str:
    """The place that a warning names, else its first words."""
    first = text.splitlines()[0].partition(": ")[0]
    return re.sub(r"\d\d:\d\d[\d:.]*", "", first.rpartition("/")[2])[:80]


def _send(pipe: int, failure: Failure) -> None:
    data = json.dumps(asdict(failure)).encode() + b"\n"
    while data:
        data = data[os.write(pipe, data) :]
