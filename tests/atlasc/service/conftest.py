"""A service of the simulated tiny model, and a client's files for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny, simulated

import atlasc
from atlasc.service.edge.rates import Rates
from atlasc.service.jobs import Jobs, Limits
from atlasc.service.programs import Programs, Served
from atlasc.service.requests import Service
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics
from atlasc.service.uploads import Uploads
from tests.atlasc.service.running import Running


@dataclass(frozen=True)
class Party:
    """A client of the tiny model without a service.

    Attributes:
        keys: its folder of keys.
        evaluation: content of its evaluation key.
        pixels: inputs.
    """

    bundle: Path
    keys: Path
    pixels: np.ndarray

    @classmethod
    def of(cls, tiny: Tiny, keys: Path) -> Party:
        """A client of a program, with new keys in a new folder."""
        atlasc.keygen(tiny.bundle, keys)
        with np.load(tiny.data) as file:
            return cls(tiny.bundle, keys, file["pixel_values"])

    @property
    def client(self) -> atlasc.Client:
        return atlasc.Client(self.bundle, self.keys)

    @property
    def evaluation(self) -> bytes:
        return (self.keys / "server" / "evaluation.key").read_bytes()


@pytest.fixture(scope="session")
def party(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party.of(tiny, tmp_path_factory.mktemp("party") / "keys")


@pytest.fixture(scope="session")
def real(tiny_cpu: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party.of(tiny_cpu, tmp_path_factory.mktemp("real") / "keys")


@pytest.fixture(scope="session")
def expected(tiny_cpu: Tiny) -> np.ndarray:
    """The answers to its first two inputs."""
    bundle = atlasc.load(tiny_cpu.bundle).bundle
    return simulated(bundle, tiny_cpu.data, [0, 1])["output"]


@pytest.fixture(scope="session")
def programs(tiny: Tiny) -> Programs:
    return Programs([tiny.bundle])


@pytest.fixture(scope="session")
def served(programs: Programs) -> Served:
    return next(iter(programs))


@pytest.fixture
def start(tiny: Tiny, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts services of the tiny model; they are killed at the end."""
    started: list[Running] = []

    def start(*options: object, bundle: Path = tiny.bundle, name: str = "state") -> Running:
        started.append(Running(tmp_path / name, bundle, *options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def inside(tmp_path: Path, programs: Any) -> Iterator[Any]:
    """The parts of a service, without what computes."""

    store = Store(tmp_path / "state")
    limits = Limits(10, 10, 1 << 40, 10.0)
    jobs, uploads = Jobs(store, programs, limits), Uploads.of(store, programs, 1 << 40)
    runner: Any = None
    yield Service(store, programs, uploads, jobs, runner, Metrics(), Rates(1.0), 1.0)
    store.close()
