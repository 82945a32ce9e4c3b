"""What a service says of itself: its log, and figures for Prometheus.

The log is one JSON object a line on standard error. A line has names of tenants, jobs and programs,
sizes and times; never a token, a key, a query, an answer or an input. No figure names a tenant,
and no label has a value that a client chooses: models are those of this service, routes and methods
those of short lists.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

_LOGGER = logging.getLogger("atlasc.service")
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
_FAST = (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 1, 3, 10, 30)


BUDGETS = {"strangers": (1.0, 20.0), "tenants": (20.0, 200.0), "server": (1.0, 20.0)}
"""Lines a second, and at once, of requests without a token, of other requests, and of the HTTP
server. What exceeds them is counted in the next line."""


def log(level: str, event: str, *, budget: str = "", **facts: object) -> None:
    """Write a line; ``level`` is ``info``, ``warning`` or ``error``, ``budget`` one of ``BUDGETS``
    for lines that others cause.
    """
    _LOGGER.log(getattr(logging, level.upper()), event, extra={"facts": facts, "budget": budget})


class Budgets(logging.Filter):
    """Lets only so many lines through."""

    def __init__(self) -> None:
        super().__init__()
        self._left = {name: (burst, time.time()) for name, (_, burst) in BUDGETS.items()}
        self._hidden = dict.fromkeys(BUDGETS, 0)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; it tells how many before it were not."""
        name = getattr(record, "budget", "server")
        if not name:
            return True
        (rate, burst), (left, since) = BUDGETS[name], self._left[name]
        left = min(burst, left + (record.created - since) * rate)
        self._left[name] = (left - (left >= 1), record.created)
        if left < 1:
            self._hidden[name] += 1
        elif self._hidden[name]:
            record.facts = {**getattr(record, "facts", {}), "not_shown": self._hidden[name]}
            self._hidden[name] = 0
        return left >= 1


class Lines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record. An error shows its type and place, not its text."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            place = record.exc_info[2]
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            line["error"] = type(record.exc_info[1]).__name__
            if place is not None:
                line["at"] = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
        return json.dumps(
            {k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}, default=str
        )


def start_logging() -> None:
    """Send the lines of the service, and faults of the HTTP server, to standard error.

    Warnings of the HTTP server are of requests that are no HTTP: who sends them gets 400.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    handler.addFilter(Budgets())
    levels = {"atlasc.service": logging.INFO, "uvicorn": logging.ERROR, "asyncio": logging.ERROR}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class Metrics:
    """The figures, in a registry of their own.

    Args:
        further: figures that are read when they are asked for.

    Attributes:
        waiting, running: jobs that wait, and that run.
        workers, ready: workers that were asked for, and those that take jobs.
        loaded: key sets in each worker's memory.
        loads: times that keys were loaded.
        deaths: times that a worker died in a job.
        gpu_bytes, gpu_lost: memory of each worker's GPU by kind, and whether the GPU is lost.
    """

    def __init__(self, *further: Collector) -> None:
        self._registry = CollectorRegistry()
        for one in further:
            self._registry.register(one)
        self.waiting = Gauge("atlasc_jobs_waiting", "Jobs that wait", registry=self._registry)
        self.running = Gauge("atlasc_jobs_running", "Jobs that run", registry=self._registry)
        self.workers = Gauge(
            "atlasc_workers", "Workers that were asked for", registry=self._registry
        )
        self.ready = Gauge(
            "atlasc_workers_ready", "Workers that take jobs", registry=self._registry
        )
        self.loaded = Gauge(
            "atlasc_keys_loaded", "Key sets in memory", ["worker"], registry=self._registry
        )
        self.loads = Counter("atlasc_key_loads", "Times keys were loaded", registry=self._registry)
        self.deaths = Counter(
            "atlasc_worker_deaths", "Deaths of workers in a job", registry=self._registry
        )
        self.gpu_bytes = Gauge(
            "atlasc_gpu_bytes", "Memory of a GPU: total, free, and that of loaded keys",
            ["worker", "kind"], registry=self._registry,
        )  # fmt: skip
        self.gpu_lost = Gauge(
            "atlasc_gpu_lost", "Whether a GPU failed, until a new process has it",
            ["worker"], registry=self._registry,
        )  # fmt: skip
        self._jobs = Counter("atlasc_jobs", "Jobs that ended", ["state"], registry=self._registry)
        self._job_seconds = Histogram(
            "atlasc_job_seconds", "Seconds of a job", ["model", "version"],
            buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._wait_seconds = Histogram(
            "atlasc_job_wait_seconds", "Seconds that a job waited for a worker",
            ["model", "version"], buckets=_SECONDS, registry=self._registry,
        )  # fmt: skip
        self._received = Counter(
            "atlasc_received_bytes", "Bytes of the bodies of requests", ["route"],
            registry=self._registry,
        )  # fmt: skip
        self._sent = Counter(
            "atlasc_sent_bytes", "Bytes of the bodies of answers", ["route"],
            registry=self._registry,
        )  # fmt: skip
        self._requests = Histogram(
            "atlasc_request_seconds", "Seconds of a request", ["method", "route", "status"],
            buckets=_FAST, registry=self._registry,
        )  # fmt: skip

    def began(self, program: tuple[str, str], seconds: float) -> None:
        """Count a job that a worker was given; ``program`` is its model and version."""
        self._wait_seconds.labels(*program).observe(seconds)

    def gpu(self, worker: str, facts: Mapping[str, int]) -> None:
        """Note what a worker tells of its GPU."""
        for kind in ("total", "free", "keys"):
            if kind in facts:
                self.gpu_bytes.labels(worker, kind).set(facts[kind])
        self.gpu_lost.labels(worker).set(facts["lost"])

    def ended(self, program: tuple[str, str], state: str, seconds: float) -> None:
        """Count a job that ran."""
        self._jobs.labels(state).inc()
        if state == "done":
            self._job_seconds.labels(*program).observe(seconds)

    def answered(
        self, method: str, route: str, status: int, seconds: float, received: int, sent: int
    ) -> None:
        """Count a request; ``method`` and ``route`` are of short lists, whatever was asked."""
        self._requests.labels(method, route, str(status)).observe(seconds)
        self._received.labels(route).inc(received)
        self._sent.labels(route).inc(sent)

    def text(self) -> bytes:
        """All figures in Prometheus' text form."""
        return generate_latest(self._registry)
