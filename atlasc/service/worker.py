"""The process that computes: one job at a time, with the keys of the latest tenants in memory.

The service starts it as ``python -m atlasc.service.worker`` and talks to it in JSON lines over its
standard input and output. A process of its own keeps the service answering while it computes, can
be killed and started again, and is the one that the kernel kills first where memory runs out. It
ends when its input does, so a service that was killed leaves none behind.

Lines to it: ``{"start": {...}}`` first, then ``{"job": {...}}``, ``{"cancel": id}`` and
``{"forget": key}``. Lines from it: ``ready``, ``progress``, ``done``, ``failed``, ``cancelled`` and
``loaded``, each with what its name says.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import queue
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from atlasc.api.roles import Server
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.messages import Message
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import open_plain
from atlasc.service.faults import fault_of

NICENESS = 10
"""The service answers requests before the worker computes."""
OOM_SCORE = 500
"""Where memory runs out, the kernel kills the worker rather than the service."""

Send = Callable[[Mapping[str, Any]], None]


class Cancelled(Exception):
    """The job that runs was cancelled."""


class Worker:
    """Programs, and the keys that are loaded for them.

    Args:
        programs: identity of a program -> folder of its bundle, and the bytes of its loaded keys.
        budget: bytes that loaded keys may take together.
        send: sends a line to the service.
    """

    def __init__(self, programs: Mapping[str, tuple[str, int]], budget: int, send: Send) -> None:
        self.programs, self.budget, self.send = programs, budget, send
        self._bundles: dict[str, Bundle] = {}
        self._loaded: OrderedDict[tuple[str, str], Server] = OrderedDict()
        self.cancelled: set[str] = set()

    def run(self, job: Mapping[str, str]) -> None:
        """Answer one query, and tell the service how it went."""
        name, started = job["id"], time.monotonic()
        try:
            self._check(name)
            bundle = self._bundle(job["program"])
            query = Message.read(Path(job["query"]), "query", bundle)
            server = self._server(job["program"], job["key"], Path(job["key_path"]))
            told = -1

            def progress(what: str, done: int, total: int | None) -> None:
                nonlocal told
                self._check(name)
                if done > told:
                    told = done
                    self.send({"progress": name, "done": done})

            answer, _ = server.answer(query, progress)
            answer.save(Path(job["answer"]))
        except Cancelled:
            self.send({"cancelled": name})
        except AtlasError as error:
            self.send({"failed": name, "fault": fault_of(error).model_dump()})
        except MemoryError:
            why = {"error": "the job could not be computed", "why": "memory is too small"}
            self.send({"failed": name, "fault": why})
        else:
            self.send({"done": name, "seconds": time.monotonic() - started})
        finally:
            self.cancelled.discard(name)

    def forget(self, key: str) -> None:
        """Free keys that their tenant deleted."""
        for loaded in [one for one in self._loaded if one[1] == key]:
            del self._loaded[loaded]
        gc.collect()

    def _check(self, job: str) -> None:
        if job in self.cancelled:
            raise Cancelled

    def _bundle(self, program: str) -> Bundle:
        if program not in self._bundles:
            bundle = load_bundle(Path(self.programs[program][0]), "server")
            if bundle.manifest.program != program:
                raise AtlasError(
                    "the program was changed while the service ran",
                    remedy="ask whoever runs the service to start it again",
                )
            self._bundles[program] = bundle
        return self._bundles[program]

    def _server(self, program: str, key: str, path: Path) -> Server:
        """The server with these keys; the least recently used others make room for them."""
        if (program, key) in self._loaded:
            self._loaded.move_to_end((program, key))
            return self._loaded[program, key]
        new = self.programs[program][1]
        while (
            self._loaded and new + sum(self.programs[p][1] for p, _ in self._loaded) > self.budget
        ):
            self._loaded.popitem(last=False)
            gc.collect()
        with (
            open_plain(path, 2**63, links=False) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            server = self._loaded[program, key] = Server(self._bundle(program), view)
        self.send({"loaded": len(self._loaded)})
        return server


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

    def send(record: Mapping[str, Any]) -> None:
        with lock:
            print(json.dumps(record), file=out, flush=True)

    start = json.loads(sys.stdin.readline())["start"]
    worker = Worker(start["programs"], start["budget"], send)
    orders: queue.Queue[Mapping[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(worker, orders), daemon=True).start()
    send({"ready": os.getpid()})
    while True:
        order = orders.get()
        if "job" in order:
            worker.run(order["job"])
        elif "forget" in order:
            worker.forget(order["forget"])


def _listen(worker: Worker, orders: queue.Queue[Mapping[str, Any]]) -> None:
    """Pass orders on while a job runs; cancel at once; end with the service."""
    for line in sys.stdin:
        order = json.loads(line)
        if "cancel" in order:
            worker.cancelled.add(order["cancel"])
        else:
            orders.put(order)
    os._exit(0)


if __name__ == "__main__":
    main()
