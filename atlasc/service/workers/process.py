"""The process that computes on the service's own machine.

The service starts it as ``python -m atlasc.service.workers.process`` and talks to it in JSON lines
over its standard input and output. A process of its own keeps the service answering while it
computes, can be killed and started again, and is the one that the kernel kills first where memory
runs out. It ends when its input does, so a service that was killed leaves none behind.

Lines to it: ``{"start": {...}}`` first, then ``{"job": {...}}``, ``{"cancel": id}`` and
``{"forget": key}``. Lines from it are records, see :mod:`atlasc.service.workers.base`, and, if it
knows why it ends, ``{"ends": reason}`` as the last one.
"""

from __future__ import annotations

import json
import mmap
import os
import queue
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import open_plain
from atlasc.runtime.native import load_library, translated
from atlasc.service.texts import Opened, open_programs, open_text
from atlasc.service.workers.base import Loadable, Record
from atlasc.service.workers.executor import Executor

NICENESS = 10
"""The service answers requests before the worker computes."""
OOM_SCORE = 500
"""Where memory runs out, the kernel kills the worker rather than the service."""


def main() -> None:
    """Answer the service until its end."""
    os.umask(0o077)
    os.nice(NICENESS)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    # Lines go through a descriptor of their own: whatever else prints must not break them.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def tell(record: Record) -> None:
        with lock:
            print(json.dumps(record), file=out, flush=True)

    start = json.loads(sys.stdin.readline())["start"]
    programs = {name: Loadable(*facts) for name, facts in start["programs"].items()}
    sizes = {name: one.loaded_bytes for name, one in programs.items()}
    opened = cache(open_programs)

    def open_program(program: str) -> Opened:
        found = opened(Path(programs[program].folder)).get(program)
        if found is None:
            raise AtlasError(
                "the program was changed while the service ran",
                remedy="ask whoever runs the service to start it again",
            )
        return found

    executor = Executor(open_program, sizes, start["budget"], tell)
    orders: queue.Queue[Mapping[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(executor, orders), daemon=True).start()
    engine = start.get("engine", "")
    try:
        if engine:
            tell(_gpu(engine, executor))
        tell({"ready": os.getpid(), "machine": socket.gethostname()})
        while True:
            order = orders.get()
            if "job" in order:
                ended = _run(executor, order["job"])
                if engine and "failed" in ended:
                    _gpu(engine, executor)  # a GPU that was lost while keys were loaded
                tell(ended)
            elif "forget" in order:
                executor.forget(order["forget"])
            if engine:
                tell(_gpu(engine, executor))
    except AtlasError as error:  # the service starts another process
        if engine:
            tell({"gpu": {"lost": 1}})
        tell({"ends": str(error)})
        sys.exit(f"error: {error}")


def _gpu(engine: str, executor: Executor) -> Record:
    """The memory of this process's GPU.

    Raises:
        AtlasError: it is lost.
    """
    with translated():
        library = load_library()
        [(_, total)] = library.devices(engine)
        free = library.free_bytes(engine)
    keys = executor.loaded_bytes
    return {"gpu": {"total": total, "free": free, "keys": keys, "lost": 0}}


def _run(executor: Executor, job: Mapping[str, str]) -> Record:
    """Run an :class:`atlasc.service.workers.base.Order`, whose paths are texts here."""
    place = Path(job["answer"])
    return executor.run(
        job["job"], job["program"], job["key"], Path(job["query"]),
        partial(mapped, Path(job["evaluation"])), lambda answer: answer.save(place),
        partial(open_text, Path(job["texts"])),
    )  # fmt: skip


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """The content of a file, which is read as it is needed.

    Raises:
        AtlasError: it cannot be read.
    """
    with (
        open_plain(path, 2**63, links=False) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        yield view


def _listen(executor: Executor, orders: queue.Queue[Mapping[str, Any]]) -> None:
    """Pass orders on while a job runs; cancel at once; end with the service."""
    for line in sys.stdin:
        order = json.loads(line)
        if "cancel" in order:
            executor.cancelled.add(order["cancel"])
        else:
            orders.put(order)
    os._exit(0)


if __name__ == "__main__":
    main()
