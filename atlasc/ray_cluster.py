"""Connects to a Ray cluster, or starts one on this machine that nobody else reaches."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atlasc.ir.errors import AtlasError

CONNECT_SECONDS = 10.0
_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""An empty frame of settings; the server's first frame is one, too."""
LOCAL = "local"
_ALONE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray listens at the machine's address, also where it is told 127.0.0.1, unless this says that
    # there are no other machines. It is read when Ray is imported.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


def cluster_address(given: str | None) -> str:
    """Where the cluster is: as given, or as RAY_ADDRESS says; ``local`` starts one."""
    return given or os.environ.get("RAY_ADDRESS") or LOCAL


@contextmanager
def ray_cluster(
    address: str | None, *, processors: int | None, store_bytes: int, instead: str
) -> Iterator[Any]:
    """The library ``ray``, connected while the block runs. A program that is connected already
    keeps its cluster.

    A cluster that is started here listens at 127.0.0.1, has no dashboard and sends no statistics.
    Its files lie in a folder that only its owner may enter, and are removed at the end.

    Args:
        address: HOST:PORT, ``auto`` or ``local``; see :func:`cluster_address`.
        processors: of a cluster that is started here; None: all.
        store_bytes: size of its object store.
        instead: what to do without Ray, for the message.

    Raises:
        AtlasError: Ray is not installed, or the cluster cannot be reached.
    """
    place = cluster_address(address)
    with ExitStack() as stack:
        local: dict[str, Any] = {}
        if place == LOCAL:
            stack.enter_context(_environment(_ALONE))
        try:
            import ray
        except ImportError:
            raise AtlasError(
                "workers need Ray, which is not installed",
                remedy=f"pip install ray, or {instead}",
            ) from None
        if ray.is_initialized():
            yield ray
            return
        if place == LOCAL:
            # Ray opens its own folder to everybody.
            folder = stack.enter_context(
                TemporaryDirectory(prefix="atlasc-ray-", ignore_cleanup_errors=True)
            )
            local = {
                "num_cpus": processors, "include_dashboard": False,
                "object_store_memory": store_bytes, "_temp_dir": str(Path(folder) / "ray"),
            }  # fmt: skip
        try:
            host, _, port = place.removeprefix("ray://").rpartition(":")
            if host:  # Ray itself would keep trying for minutes
                _greet(host, int(port))
            ray.init(place, logging_level=logging.ERROR, log_to_driver=False, **local)
        except (ImportError, RuntimeError, ValueError, OSError) as error:
            raise AtlasError(
                f"the Ray cluster at {place} cannot be reached",
                why=str(error).strip().partition("\n")[0],
                remedy="give --workers 'ray{address=HOST:PORT}' or RAY_ADDRESS of a cluster",
            ) from error
        stack.callback(ray.shutdown)
        yield ray


def _greet(host: str, port: int) -> None:
    """Begin to speak HTTP/2, as Ray does (RFC 9113, section 3.4).

    Raises:
        OSError: nothing answers, or something else than Ray.
    """
    with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
        if connection.recv(9)[3:4] != _SETTINGS[3:4]:
            raise ConnectionError("what listens there is not Ray")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process, and of those that it starts, while the block runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
