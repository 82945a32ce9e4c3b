"""Spreads evaluations over processes and machines with Ray, whose actors are called workers
here.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ray_cluster import ray_cluster
from atlasc.search.points import Point, Settings
from atlasc.search.search_problem import AUTO, RayWorkers, SearchProblem, silent

GPU_BATCH = 32
"""Settings sent at once to a worker with a GPU; other workers get one, so that none is late."""
DEATHS = 3
"""Number of workers that may die on one setting."""
PATIENCE = 30.0
"""Seconds without any worker after which a note says what the search waits for."""
STORE_MEMORY = 200 << 20
"""Bytes of a local object store in addition to the problem."""


class RemoteObjective:
    """The work of a worker: the objectives of one problem, made when they are first needed."""

    def __init__(self, problem: SearchProblem) -> None:
        self._objective_of = cache(problem.objective)

    def evaluate(self, layers: int | None, settings: Sequence[Settings]) -> tuple[int, list[Point]]:
        """The process id, and points of the whole model or of its first layers."""
        return os.getpid(), list(self._objective_of(layers).points(settings)) if settings else []


@dataclass
class _Worker:
    actor: Any = None
    share: deque[Settings] = field(default_factory=deque)
    process: int | None = None  # known once it runs


class RayPool(AbstractContextManager["RayPool"]):
    """Workers that hold one problem; used as a context.

    Settings with equal first layers go to one worker, which reuses the values that they share. An
    idle worker takes half of the longest share. A worker that dies is replaced, and its settings
    are evaluated again.

    Raises:
        AtlasError: Ray is not installed, or its cluster cannot be reached.
    """

    def __init__(self, problem: SearchProblem, workers: RayWorkers) -> None:
        self._stack, self._note = ExitStack(), problem.note
        ray = self._ray = self._stack.enter_context(
            ray_cluster(
                workers.address,
                processors=workers.threads * workers.count if workers.count else None,
                store_bytes=STORE_MEMORY + sum(a.nbytes for a in problem.module.symbols.values()),
                instead="search with --workers serial",
            )
        )
        resources = ray.cluster_resources()
        gpus = 0 if problem.device == "cpu" else int(resources.get("GPU", 0))
        processors = int(resources.get("CPU", 1)) // workers.threads
        count = workers.count or gpus or max(1, processors)
        self._batch = GPU_BATCH if gpus else 1
        # A worker without its own GPU must not use one that it happens to see.
        device = "cpu" if problem.device == AUTO and not gpus else problem.device
        theirs = replace(problem, threads=workers.threads, device=device)
        self._problem = ray.put(replace(theirs, journal=None, workers=None, note=silent))
        self._class = ray.remote(
            num_cpus=workers.threads,
            num_gpus=1 / -(-count // gpus) if gpus else 0,
            max_restarts=0,
            max_task_retries=0,
        )(RemoteObjective)
        self._running: dict[Any, tuple[_Worker, list[Settings]]] = {}
        self._deaths: Counter[Settings | None] = Counter()
        self._workers = [_Worker() for _ in range(count)]
        for worker in self._workers:
            self._start(worker)

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._stack.close()

    @property
    def processes(self) -> list[int]:
        """Process ids of the started workers, each on its own machine."""
        return [worker.process for worker in self._workers if worker.process is not None]

    def evaluate(self, layers: int | None, settings: Sequence[Settings]) -> Iterator[Point]:
        """Points as they become known.

        Args:
            layers: number of layers in the proxy; None for the whole model.
            settings: settings in an order that makes those with equal first layers neighbours.

        Raises:
            AtlasError: an evaluation fails, or workers die again and again.
        """
        count, left = len(self._workers), len(settings)
        for index, worker in enumerate(self._workers):
            first, last = (left * i // count for i in (index, index + 1))
            worker.share = deque(settings[first:last])
            self._give(worker, layers)
        while left:
            worker, points = self._next()
            self._give(worker, layers)
            left -= len(points)
            yield from points

    def _next(self) -> tuple[_Worker, list[Point]]:
        """Wait for a worker that has points, has started, or was replaced."""
        ready: list[Any] = []
        while not ready:
            ready, _ = self._ray.wait(list(self._running), timeout=PATIENCE)
            if not ready and not self.processes:
                self._note("no worker has started yet, because the cluster has no free processor")
        worker, task = self._running.pop(ready[0])
        errors = self._ray.exceptions
        try:
            worker.process, points = self._ray.get(ready[0])
        except errors.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except errors.RayError as error:
            self._replace(worker, task, error)
            return worker, []
        if not task:
            del self._deaths[None]
        return worker, points

    def _give(self, worker: _Worker, layers: int | None) -> None:
        """Give an idle worker its next settings."""
        if worker.process is None:
            return
        if not worker.share:
            longest = max((other.share for other in self._workers), key=len)
            half = [longest.pop() for _ in range((len(longest) + 1) // 2)]
            worker.share.extend(reversed(half))
        task: list[Settings] = []
        while worker.share and len(task) < self._batch:
            # A setting on which a worker died, or may have died, is evaluated alone.
            if task and (self._deaths[task[0]] or self._deaths[worker.share[0]]):
                break
            task.append(worker.share.popleft())
        if task:
            self._running[worker.actor.evaluate.remote(layers, task)] = worker, task

    def _start(self, worker: _Worker) -> None:
        worker.actor, worker.process = self._class.remote(self._problem), None
        self._running[worker.actor.evaluate.remote(None, [])] = worker, []

    def _replace(self, worker: _Worker, task: list[Settings], error: Exception) -> None:
        blamed: list[Settings | None] = [*task] or [None]
        self._deaths.update(blamed)
        if self._deaths[blamed[0]] >= DEATHS:
            what = f"on one setting, {task[0]}" if task else "while they started"
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise AtlasError(
                f"{DEATHS} workers died {what}",
                why=lines[-1] if lines else "",
                remedy="use fewer workers, so that each has more memory; on a cluster, install "
                "this version of atlasc on every machine",
            )
        self._note("a worker died and is replaced; its settings are evaluated again")
        worker.share.extendleft(reversed(task))
        self._ray.kill(worker.actor)
        self._start(worker)
