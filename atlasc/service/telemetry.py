"""What a service says of itself: its log, and figures for Prometheus.

The log is one JSON object a line on standard error. A line has names of tenants, jobs and programs,
sizes and times; never a token, a key, a query, an answer or an input. No figure names a tenant.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LOGGER = logging.getLogger("atlasc.service")
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
_FAST = (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 1, 3, 10, 30)


def log(level: str, event: str, **facts: object) -> None:
    """Write a line; ``level`` is ``info``, ``warning`` or ``error``."""
    _LOGGER.log(getattr(logging, level.upper()), event, extra={"facts": facts})


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
    """Send the lines of the service, and warnings of the HTTP server, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, level in (("atlasc.service", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class Metrics:
    """The figures, in a registry of their own.

    Attributes:
        waiting: jobs that wait.
        loaded: key sets in each worker's memory.
        loads: times that keys were loaded.
        deaths: times that a worker died in a job.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.waiting = Gauge("atlasc_jobs_waiting", "Jobs that wait", registry=self._registry)
        self.loaded = Gauge(
            "atlasc_keys_loaded", "Key sets in memory", ["worker"], registry=self._registry
        )
        self.loads = Counter("atlasc_key_loads", "Times keys were loaded", registry=self._registry)
        self.deaths = Counter(
            "atlasc_worker_deaths", "Deaths of workers in a job", registry=self._registry
        )
        self._jobs = Counter("atlasc_jobs", "Jobs that ended", ["state"], registry=self._registry)
        self._job_seconds = Histogram(
            "atlasc_job_seconds", "Seconds of a job", buckets=_SECONDS, registry=self._registry
        )
        self._requests = Histogram(
            "atlasc_request_seconds", "Seconds of a request", ["method", "route", "status"],
            buckets=_FAST, registry=self._registry,
        )  # fmt: skip

    def ended(self, state: str, seconds: float) -> None:
        """Count a job that ran."""
        self._jobs.labels(state).inc()
        if state == "done":
            self._job_seconds.observe(seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request; ``route`` has no names or numbers of its own."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    def text(self) -> bytes:
        """All figures in Prometheus' text form."""
        return generate_latest(self._registry)
