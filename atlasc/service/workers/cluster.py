"""Workers that are actors of a Ray cluster. Ray places them; the runner gives them jobs.

Ray would start an actor that died again by itself, and run its job again. Here the runner does: it
counts the deaths, in the database, and waits longer after each.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.bundle.sealed import facts_of
from atlasc.files import write_private, write_with
from atlasc.generation.server import CACHE
from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.files import MIB
from atlasc.ray_cluster import LOCAL, cluster_address, ray_cluster
from atlasc.service.faults import fault_of
from atlasc.service.programs import Programs
from atlasc.service.telemetry import log
from atlasc.service.texts import name_text, open_text
from atlasc.service.workers.actor import Ran, RayActor, fitting_budget, part_of
from atlasc.service.workers.base import Loadable, Order, Record, Tell, Worker
from atlasc.service.workers.process import mapped
from atlasc.version import __version__

POLL_SECONDS = 0.5
"""Seconds between two looks at the progress of a job."""
PATIENCE = 30.0
"""Seconds without a place for a worker after which the log says so."""
ANSWER_SECONDS = 60.0
"""How long the machines of a cluster have to say whether they can compute."""
STORE_BYTES = 200 * MIB
"""Object store of a cluster that is started here, beside what travels through it."""
CONTROL = "control"
"""Calls of this group of an actor do not wait for its job."""


@dataclass(frozen=True)
class Cluster:
    """Which cluster, and how much of it.

    Attributes:
        address: see :func:`atlasc.ray_cluster.ray_cluster`.
        count: workers; None: one for each machine.
    """

    address: str | None = None
    count: int | None = None


def ray_workers(
    stack: ExitStack, cluster: Cluster, programs: Programs, memory: int | None
) -> list[Worker]:
    """Workers of a cluster, to which this process is connected until the stack is closed.

    Args:
        memory: bytes that loaded keys of one worker may take; None: half of what is free on its
            machine, divided by the workers there.

    Raises:
        AtlasError: Ray is not installed, the cluster cannot be reached or is too small, or one of
            its machines cannot compute.
    """
    processors = None
    if cluster_address(cluster.address) == LOCAL:
        if cluster.count is not None:
            processors = max(cluster.count, os.cpu_count() or 1)
        if "RAY_AUTH_MODE" not in os.environ:  # also other users of this machine are kept out
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    parts = {str(place): part_of(place) for place in {one.folder for one in programs}}
    weights = sum(content.nbytes for files in parts.values() for content in files.values())
    # The keys and values of a text travel both ways.
    moving = max(
        one.key_bytes + one.query_bytes + one.answer_bytes + 2 * one.text_bytes for one in programs
    )
    ray = stack.enter_context(
        ray_cluster(
            cluster.address,
            processors=processors,
            store_bytes=STORE_BYTES + weights + (cluster.count or 1) * moving,
            instead="serve with --workers local",
        )
    )
    nodes = [
        one for one in ray.nodes() if one["Alive"] and one["Resources"].get("CPU", 0) >= 1
    ]  # fmt: skip
    processors_of = [int(one["Resources"]["CPU"]) for one in nodes]
    count, sharing, threads = shared_out(processors_of, cluster.count)
    hosts = {one["NodeID"]: one["NodeManagerHostname"] for one in nodes}
    require_machines(ray, hosts, (programs.loadable, memory, sharing, __version__))
    kind = ray.remote(
        num_cpus=threads, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD",
        concurrency_groups={CONTROL: 1},
    )(RayActor)  # fmt: skip
    shared = ray.put(parts)  # once for each machine, however many workers are there
    make = partial(kind.remote, threads)
    given = (programs.loadable, shared, memory, sharing, __version__)
    return [RayWorker(number, ray, make, given) for number in range(count)]


def shared_out(machines: Sequence[int], asked: int | None) -> tuple[int, int, int]:
    """Number of workers, most workers of one machine, and processors of a worker.

    Args:
        machines: processors of each machine.
        asked: number of workers; None: one for each machine.

    Raises:
        AtlasError: the machines have no room for so many.
    """
    count = asked or max(1, len(machines))
    sharing = -(-count // max(1, len(machines)))
    threads = max(1, min(machines, default=1) // sharing)
    room = sum(one // threads for one in machines)
    if room < count:
        raise AtlasError(
            f"the Ray cluster has room for {counted(room, 'worker', 'workers')} of {count}",
            why=f"its machines have {', '.join(map(str, machines)) or 'no'} processors, and a "
            f"worker takes {threads}",
            remedy="start the machines that are missing (ray start), or ask for fewer workers "
            "with count of --workers ray",
        )
    return count, sharing, threads


def require_machines(ray: Any, hosts: Mapping[str, str], given: Sequence[Any]) -> None:
    """Ask each machine whether a worker can run there; see :func:`.actor.fitting_budget`.

    Args:
        hosts: id of a node -> name of the machine.

    Raises:
        AtlasError: one cannot, or does not answer.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0, max_retries=0)(fitting_budget)
    places = {node: NodeAffinitySchedulingStrategy(node, soft=False) for node in hosts}
    asked = {
        node: ask.options(scheduling_strategy=place).remote(*given)
        for node, place in places.items()
    }
    for node, answer in asked.items():
        try:
            ray.get(answer, timeout=ANSWER_SECONDS)
        except ray.exceptions.RayError as error:
            found = getattr(error, "cause", None) or error
            if not isinstance(found, AtlasError):
                found = AtlasError(
                    "a machine of the Ray cluster cannot compute",
                    why=str(found).strip().rpartition("\n")[2],
                    remedy="install this version of atlasc on all machines of the cluster",
                )
            place = f"the machine {hosts[node]}"
            raise AtlasError(found.what, where=place, why=found.why, remedy=found.remedy) from None


class RayWorker(Worker):
    """An actor that is made and killed. A thread of its own waits for it.

    Args:
        number: see :class:`Worker`.
        ray: the library, connected.
        make: makes an actor.
        given: what the actor opens first, see :meth:`RayActor.open`.
    """

    def __init__(
        self, number: int, ray: Any, make: Callable[[], Any], given: Sequence[Any]
    ) -> None:
        super().__init__(number)
        self._ray, self._make, self._given = ray, make, given
        self._programs: Mapping[str, Loadable] = given[0]
        self._actor: Any = None
        self._keys: set[tuple[str, str]] = set()
        self._tell: Tell = lambda record: None
        self._steps: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=f"worker-{number}", daemon=True)
        self._thread.start()

    def start(self, tell: Tell) -> None:
        """Make an actor, in place of one that died."""
        self._tell = tell
        self._steps.put(self._begin)

    def run(self, order: Order) -> None:
        """Send a job, and its keys if the actor does not have them."""
        self._steps.put(partial(self._run, order))

    def cancel(self, job: str) -> None:
        """Cancel a job of the actor."""
        if self._actor is not None:
            self._actor.cancel.options(concurrency_group=CONTROL).remote(job)

    def forget(self, key: str) -> None:
        """Have the actor forget keys."""
        self._steps.put(partial(self._forget, key))

    def end(self) -> None:
        """Kill the actor."""
        self._steps.put(None)
        if self._actor is not None:
            self._ray.kill(self._actor)
        self._thread.join(10)

    # --- the thread

    def _loop(self) -> None:
        for step in iter(self._steps.get, None):
            try:
                step()
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                self._lost(error)

    def _lost(self, error: Exception) -> None:
        actor, self._actor, self._keys = self._actor, None, set()
        if actor is not None:
            self._ray.kill(actor)  # one that failed may still be there
        cause = getattr(error, "cause", None)  # of an error that the actor raised
        lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
        self._tell({"died": "; ".join(lines if cause else lines[-1:])})

    def _begin(self) -> None:
        self._actor = self._make()
        place = self._actor.open.remote(*self._given)
        if not self._ray.wait([place], timeout=PATIENCE)[0]:
            log("warning", "the cluster has no free processors for a worker", worker=self.number)
        process, machine = self._ray.get(place)
        self._tell({"ready": process, "machine": machine})

    def _run(self, order: Order) -> None:
        tokens = self._programs[order.program].tokens
        try:
            if tokens:
                name = facts_of(order.query).get("query", "")
                with open_text(order.texts, name, tokens) as place:
                    record = self._computed(order, place)
            else:
                record = self._computed(order)
        except AtlasError as error:
            record = {"failed": fault_of(error).model_dump()}
        self._tell(record)

    def _computed(self, order: Order, text: Path | None = None) -> Record:
        """How a job went, whose answer is in its file then.

        Args:
            text: folder of the text that it belongs to. Keys and values are written before the
                answer: the actor may be gone at the next query.

        Raises:
            AtlasError: a file cannot be read or written.
        """
        query, keys, session, kept = self._put(order.query), None, "", None
        if (order.program, order.key) not in self._keys:
            keys = self._put(order.evaluation)
        if text is not None:
            session = text.name
            kept = self._put(text / CACHE) if (text / CACHE).exists() else None
        given = (order.job, order.program, order.key, query, keys, session, kept)
        result = self._actor.run.remote(*given)
        while not self._ray.wait([result], timeout=POLL_SECONDS)[0]:
            look = self._actor.look.options(concurrency_group=CONTROL).remote()
            if self._ray.wait([look, result], timeout=PATIENCE)[0] == [look]:
                self._note(self._ray.get(look))
        ran: Ran = self._ray.get(result)
        self._note({"keys": ran.loaded})
        answer = ran.answer
        if text is not None and ran.text is not None:
            session, after = ran.text
            write_private(text / CACHE, lambda draft: after.tofile(draft))
            name_text(text, session)
        if answer is not None:
            write_with(order.answer, lambda draft: answer.tofile(draft))
        return ran.record

    def _forget(self, key: str) -> None:
        if self._actor is not None:
            self._note({"keys": self._ray.get(self._actor.forget.remote(key))})

    def _put(self, path: Path) -> Any:
        """A file in the object store, where it stays until the job has ended."""
        with mapped(path) as content:
            view = np.frombuffer(content, np.uint8)
            try:
                return self._ray.put(view)
            finally:
                del view  # the file cannot be closed before

    def _note(self, now: Mapping[str, Any]) -> None:
        if "progress" in now:
            self._tell({"progress": now["progress"]})
        if "keys" in now and set(now["keys"]) != self._keys:
            self._keys = set(map(tuple, now["keys"]))
            self._tell({"keys": list(self._keys)})
