"""Starts a service: everything that can be wrong is found before the first request is taken."""

from __future__ import annotations

import asyncio.sslproto
import gc
import ipaddress
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from fastapi import APIRouter

from atlasc.bundle.sealed import require_no_secret
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import KIB, require_private
from atlasc.remote.link import is_loopback
from atlasc.service.app import make_app
from atlasc.service.edge.door import IDLE_SECONDS, Door, Listener, address_of
from atlasc.service.edge.gate import App
from atlasc.service.edge.protocol import HttpConnection
from atlasc.service.edge.rates import Rates
from atlasc.service.jobs import Jobs, Limits
from atlasc.service.programs import Programs
from atlasc.service.records.housekeeping import Rules
from atlasc.service.records.usage import Usage, require_disk
from atlasc.service.requests import Service
from atlasc.service.runner import Runner
from atlasc.service.store import Store, only_service
from atlasc.service.telemetry import Metrics, log, start_logging
from atlasc.service.uploads import Uploads
from atlasc.service.workers.base import Worker
from atlasc.service.workers.cluster import Cluster, ray_workers
from atlasc.service.workers.executor import memory_budget
from atlasc.service.workers.local import LocalWorker, gpu_workers
from atlasc.targets.machine import share_memory_of_threads

SWITCH_SECONDS = 0.0005
"""How long a thread may keep Python to itself: the one that answers strangers waits for others."""
SWEEP_SECONDS = 1
FAILED_SECONDS = 10
"""How long a service that has failed says so to health checks, before it ends."""
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: a record cannot be read later with the service's key alone. Defaults of Python and of
earlier uvicorns have others, too."""
TLS_BUFFER = 32 * KIB
"""Bytes that a connection with TLS has for what it reads. Python's own have 256 KiB each, which 288
connections that do nothing would keep."""
BACKLOG = 1024
"""Connections that the kernel holds until they are looked at."""


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Attributes:
        state: folder of keys, jobs and tokens.
        host, port: address; port 0 takes a free one.
        certificate, private_key: files for TLS.
        plain: serve other machines without TLS, because a proxy in front has it.
        proxies: addresses of such proxies, whose ``X-Forwarded-For`` is believed.
        limits: see :class:`atlasc.service.jobs.Limits`.
        memory: bytes that the loaded keys of a worker may take; None: half of what is free.
        rate: requests a second of one tenant.
        infer_seconds: how long ``infer`` waits for an answer.
        grace: seconds that the jobs that run get at the end.
        cluster: a Ray cluster that computes; None: a process of this machine.
        alone: serve bundles that have the server's part alone.
        unused: seconds after which keys without a query are removed; None: never.
    """

    state: Path
    host: str
    port: int
    limits: Limits
    certificate: Path | None = None
    private_key: Path | None = None
    plain: bool = False
    proxies: tuple[str, ...] = ()
    memory: int | None = None
    rate: float = 100.0
    infer_seconds: float = 600.0
    grace: float = 30.0
    cluster: Cluster | None = None
    unused: float | None = None
    alone: bool = False


class Front(Protocol):
    """What a service shows to visitors without a token (:mod:`atlasc.demo`)."""

    def limits(self, limits: Limits, programs: Programs) -> Limits:
        """The limits of all tenants."""

    def router(self, service: Service) -> APIRouter:
        """The endpoints that need no token."""


@contextmanager
def private_files() -> Iterator[None]:
    """What the block writes is its owner's alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def short_turns() -> Iterator[None]:
    """A thread of the block keeps Python to itself for ``SWITCH_SECONDS``, not longer."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@private_files()
@short_turns()
def serve(
    folders: Sequence[Path],
    settings: Settings,
    started: Callable[[str], None] = lambda url: None,
    front: Front | None = None,
) -> None:
    """Serve programs until SIGTERM or SIGINT.

    Args:
        folders: bundles; of several versions of a model, the current one first.
        started: called with the address, once connections are taken.
        front: what visitors without a token see; by default nothing.

    Raises:
        AtlasError: a bundle, the state, the address or a certificate cannot be used; a secret key
            lies in a folder; keys of a program do not fit into the memory or on the disk; the
            cluster cannot be reached, or is too small; or, later, no worker can be started.
    """
    share_memory_of_threads()
    require_transport(settings)
    programs = Programs(folders, alone=settings.alone)
    require_no_secret(settings.state)  # before the database is open, see Store
    store = Store(settings.state)
    with ExitStack() as stack:
        stack.callback(store.close)
        stack.enter_context(only_service(store))
        stack.enter_context(small_tls_buffers())
        listener = stack.enter_context(bound(settings.host, settings.port))
        limits = settings.limits if front is None else front.limits(settings.limits, programs)
        workers = _workers(stack, programs, settings)
        jobs = Jobs(store, programs, limits)
        again = jobs.recover()
        require_disk(store, programs, limits.quota)
        uploads = Uploads.of(store, programs, limits.quota)
        metrics = Metrics(Usage(store))
        service = Service(
            store, programs, uploads, jobs,
            Runner(store, jobs, metrics, workers, Rules(unused=settings.unused)), metrics,
            Rates(settings.rate), settings.infer_seconds,
        )  # fmt: skip
        routers = [] if front is None else [front.router(service)]
        start_logging()
        if faults := store.audit.faults():
            log("warning", "the audit was changed", lines=faults[:100], file=str(store.audit.path))
        for model in {one.model for one in programs}:
            first, *older = [one.program[:8] for one in programs.listed if one.model == model]
            if older:
                log("info", "versions of a model", model=model, current=first, older=older)
        if again:
            log("info", "jobs queued again", jobs=again)
        app = make_app(service, settings.grace, routers)
        _run(service, app, settings, listener, started)
        if service.runner.failure:
            raise AtlasError(
                "no worker of the service can be started",
                why=service.runner.failure,
                remedy="mend what the reason names; jobs that wait are answered after the next "
                "start",
            )


def _workers(stack: ExitStack, programs: Programs, settings: Settings) -> list[Worker]:
    """Who computes; ended by the runner, and disconnected when the stack is closed."""
    cluster, memory, target = settings.cluster, settings.memory, programs.gpu_target
    sizes = {one.model: one.loaded_bytes for one in programs.loadable.values()}
    if target is not None and cluster is None:
        return gpu_workers(programs.loadable, target, memory)
    if target is not None:
        raise AtlasError(
            "a Ray cluster does not compute on GPUs",
            why="its workers are placed by processors alone",
            remedy="serve the program with --workers local, which has a worker for each GPU",
        )
    if cluster is None:
        return [LocalWorker(0, programs.loadable, memory_budget(sizes, memory))]
    if memory is not None:
        memory_budget(sizes, memory)  # what is free, each machine of the cluster asks itself
    return ray_workers(stack, cluster, programs, memory)


def require_transport(settings: Settings) -> None:
    """Refuse an address that others reach without TLS, and certificates that cannot be used.

    Raises:
        AtlasError: tokens would travel in the clear; or a file is missing, does not fit, or is open
            to others.
    """
    if (settings.certificate is None) != (settings.private_key is None):
        raise AtlasError("TLS needs a certificate and its key", remedy="give --tls-cert, --tls-key")
    if settings.certificate is not None and settings.private_key is not None:
        require_private(settings.private_key)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.certificate, settings.private_key)
        except (OSError, ssl.SSLError) as error:
            raise AtlasError(
                "the certificate cannot be used",
                where=str(settings.certificate),
                why=str(error),
                remedy="give a certificate chain and its key, both in PEM",
            ) from None
    elif not settings.plain and not is_loopback(settings.host):
        raise AtlasError(
            f"{settings.host} is reached by other machines, and there is no TLS",
            why="tokens and attention masks would travel in the clear",
            remedy="give --tls-cert and --tls-key; or --plain-http, if a proxy in front has TLS",
        )


def bound(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        AtlasError: the port is taken, or the address is not this machine's.
    """
    if not 0 <= port < 2**16:  # getaddrinfo takes such a number modulo 2^16
        raise AtlasError(f"there is no port {port}", remedy="choose one below 65536")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError as error:
        raise AtlasError(
            f"port {port} of {host} cannot be used",
            why=error.strerror or str(error),
            remedy="stop what listens there, or choose another --port",
        ) from None
    return listener


def _run(
    service: Service,
    app: App,
    settings: Settings,
    listener: socket.socket,
    started: Callable[[str], None],
) -> None:
    shown = 0
    door = Door(frozenset(map(address_of, settings.proxies)))

    async def sweep() -> None:
        nonlocal shown
        door.sweep()
        if service.runner.failure:
            shown += SWEEP_SECONDS
            if shown > FAILED_SECONDS:
                service.stopping = server.should_exit = True
        gc.collect()  # connections that ended in a handshake are cycles; takes a millisecond

    gc.freeze()  # what is here by now is not looked at again

    # The limits of the edge are of one protocol and one loop, whatever else is installed.
    config = uvicorn.Config(
        app,
        loop="asyncio", http=partial(HttpConnection, door=door), ws="none",  # type: ignore[arg-type]
        log_config=None, access_log=False, server_header=False, date_header=False,
        lifespan="on", timeout_keep_alive=int(IDLE_SECONDS), backlog=BACKLOG,
        proxy_headers=bool(settings.proxies), forwarded_allow_ips=[*_seen(settings.proxies)],
        timeout_graceful_shutdown=10, callback_notify=sweep, timeout_notify=SWEEP_SECONDS,
        ssl_certfile=settings.certificate, ssl_keyfile=settings.private_key, ssl_ciphers=CIPHERS,
    )  # fmt: skip
    config.load()
    if config.ssl is not None:
        config.ssl.options |= ssl.OP_NO_RENEGOTIATION
    server = uvicorn.Server(config)

    def end(number: int, frame: object) -> None:
        service.stopping = True
        server.handle_exit(number, None)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    # uvicorn would end the process by the signal; a service that was told to end ends well.
    server.capture_signals = _as_they_are  # type: ignore[method-assign, assignment]
    scheme = "http" if settings.certificate is None else "https"
    place = listener.getsockname()
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    started(f"{scheme}://{host}:{place[1]}")
    try:
        server.run(sockets=[Listener.of(listener, door)])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _seen(proxies: Sequence[str]) -> Iterator[str]:
    """Addresses as sockets name them: a socket of IPv6 has another name for those of IPv4."""
    for one in map(ipaddress.ip_address, proxies):
        plain = getattr(one, "ipv4_mapped", None) or one
        yield str(plain)
        if isinstance(plain, ipaddress.IPv4Address):
            yield f"::ffff:{plain}"


@contextmanager
def small_tls_buffers() -> Iterator[None]:
    """Give connections with TLS buffers of ``TLS_BUFFER``, as long as the service runs.

    asyncio has no public way: the size is an attribute of a class, which all connections of the
    process share, read when one is made (CPython 3.11 and later; 3.10 makes no buffer ahead). An
    application that runs a service beside connections of its own reads those in smaller pieces
    meanwhile, and loses nothing. Where a later Python lacks the attribute, this does nothing, and
    tests/atlasc/service/edge/test_tls.py finds the memory.
    """
    protocol: Any = asyncio.sslproto.SSLProtocol
    before = getattr(protocol, "max_size", TLS_BUFFER)
    protocol.max_size = TLS_BUFFER
    try:
        yield
    finally:
        protocol.max_size = before


class _as_they_are:
    """Signals stay with the handlers that are there."""

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...
