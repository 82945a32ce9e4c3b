"""A service of the whole text, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import atlasc
from atlasc.bundle.folder import Bundle
from atlasc.remote.connection import Connection
from atlasc.remote.link import address
from atlasc.remote.wire import JobStatus
from tests.atlasc.service.running import Running


@pytest.fixture(scope="module")
def whole(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service of step and prefill."""
    found = Running(tmp_path_factory.mktemp("whole") / "state", bundle.folder)
    yield found
    found.end_without_a_fault()


@pytest.fixture(scope="module")
def client(whole: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with connected(whole, tmp_path_factory.mktemp("client") / "folder", "acme") as found:
        yield found


def connected(service: Running, folder: Path, tenant: str) -> Connection:
    """A tenant's connection, whose folder is new or goes on."""
    token = service.token(tenant)
    return atlasc.connect(service.url, token=token, folder=folder, allow_simulation=True)


def jobs(connection: Connection) -> list[JobStatus]:
    """The jobs of a tenant that are known."""
    return connection._link.get(address("jobs"), list[JobStatus])
