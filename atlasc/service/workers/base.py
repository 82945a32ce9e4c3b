"""What the service asks of a worker, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Record = Mapping[str, Any]
"""What a worker tells. Each has one of the keys

- ``ready``: process id of a worker that takes jobs from now on; ``machine`` is where it runs;
- ``progress``: hundredths of the job that runs;
- ``gpu``: the bytes of its GPU's memory by kind, ``total``, ``free`` and those of loaded ``keys``;
  or that the GPU is ``lost``, as 1;
- ``keys``: all (program, key) that are in its memory, as a list of pairs;
- ``done``: seconds of the job that ran; its answer is in its file;
- ``failed``: why the job has no answer, as :class:`atlasc.remote.wire.Fault`;
- ``cancelled``: true;
- ``died``: why the worker, and what it computed, is gone; it may be started again.
"""
Tell = Callable[[Record], None]


class Loadable(NamedTuple):
    """A program, as far as a worker must know it.

    Attributes:
        folder: folder of its bundle on the service's disk; of a step and a prefill that are served
            together, that of the bundle with both.
        model: name of the model.
        loaded_bytes: memory that one tenant's keys take while they are loaded.
        tokens: most tokens of a text of which it is a program; 0 if it is none.
    """

    folder: str
    model: str
    loaded_bytes: int
    tokens: int = 0


@dataclass(frozen=True)
class Order:
    """A job for a worker.

    Attributes:
        job: its name.
        program: identity of the program.
        key: id of the tenant's keys.
        evaluation: file of these keys.
        query: file of the query.
        answer: place for the answer.
        texts: folder of the texts of these keys.
    """

    job: str
    program: str
    key: str
    evaluation: Path
    query: Path
    answer: Path
    texts: Path


class Worker(ABC):
    """Computes one job at a time, with the keys of the latest tenants in memory.

    No call waits. A worker tells what becomes of a call, from a thread of its own.

    Args:
        number: its number among the workers of the service.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    @abstractmethod
    def start(self, tell: Tell) -> None:
        """Begin to start; it will tell that it is ready, or that it died."""

    @abstractmethod
    def run(self, order: Order) -> None:
        """Compute a job; only a worker that is ready and has no job is given one."""

    @abstractmethod
    def cancel(self, job: str) -> None:
        """Stop a job before its next op; nothing happens if the worker does not have it."""

    @abstractmethod
    def forget(self, key: str) -> None:
        """Free the memory of keys that their tenant deleted."""

    @abstractmethod
    def end(self) -> None:
        """End at once; what it tells from now on is not heard."""
