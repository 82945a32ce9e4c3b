"""Attacks on a service of this machine: bounded in time and number, by 127.0.0.1 alone.

::

    python -m benchmarks.service.attacks NAME,... PORT SECONDS [TOKEN CONFIGURATION]

Each takes some connections and sends what it can over them until its time is over. Those of
``TENANTS`` have a token. Sources are 127.0.0.2 to 127.0.0.9, so that an attack has some addresses.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

ADDRESSES = 8


@dataclass
class Attack:
    """What the connections of an attack send.

    Attributes:
        connections: at once.
        sends: the writes of one connection, one after the other; it is opened again after them.
        pause: seconds between two writes of a connection.
        reads: whether answers are read.
    """

    connections: int
    sends: Callable[[Target], Iterator[bytes]]
    pause: float = 0.0
    reads: bool = True


@dataclass
class Target:
    """A service, as an attack sees it.

    Attributes:
        configuration: of the keys of a program.
    """

    port: int
    token: str = ""
    configuration: str = ""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """The head of a request."""
        token = (f"Authorization: Bearer {self.token}",) if self.token else ()
        return "\r\n".join(
            (f"{method} {path} HTTP/1.1", "Host: localhost", *token, *lines, "", "")
        ).encode()

    def json(self, path: str, body: bytes) -> bytes:
        """A request with a small body."""
        return self.head("POST", path, f"Content-Length: {len(body)}") + body


CHUNKED = "Transfer-Encoding: chunked"


def small_chunks(to: Target) -> Iterator[bytes]:
    """A body in chunks of one byte."""
    yield to.head("POST", "/keys", CHUNKED)
    yield from itertools.repeat(b"1\r\nx\r\n" * 4000, 100)


def nothing(to: Target) -> Iterator[bytes]:
    """A connection that does nothing."""
    yield from itertools.repeat(b"", 1000)


def slow_head(to: Target) -> Iterator[bytes]:
    """A head that does not end, a byte at a time."""
    yield b"GET /config HTTP/1.1\r\n"
    yield from itertools.repeat(b"a", 1000)


def slow_body(to: Target) -> Iterator[bytes]:
    """A body a byte at a time."""
    yield to.head("POST", "/jobs", "Content-Length: 1000000")
    yield from itertools.repeat(b"x", 100_000)


def long_heads(to: Target) -> Iterator[bytes]:
    """Health checks whose heads have thousands of lines."""
    yield from itertools.repeat(to.head("GET", "/v2/health/live", *["a:"] * 3900), 1000)


def long_queries(to: Target) -> Iterator[bytes]:
    """Addresses with thousands of parameters."""
    yield from itertools.repeat(to.head("GET", "/jobs?" + "a=b&" * 3800), 1000)


def methods(to: Target) -> Iterator[bytes]:
    """A request of a new method each time."""
    while True:
        yield to.head(f"M{next(to.numbers)}", f"/v2/{secrets.token_hex(4)}")


def ahead(to: Target) -> Iterator[bytes]:
    """Many requests before the first answer."""
    yield from itertools.repeat(to.head("GET", "/config") * 100, 1000)


def no_http(to: Target) -> Iterator[bytes]:
    """Bytes that are no HTTP, and a head with such a body."""
    yield to.head("POST", "/keys", CHUNKED) + b"zz\r\n" * 100
    yield b"\x16\x03\x01" + b"\n" * 500


def upgrades(to: Target) -> Iterator[bytes]:
    """Requests for another protocol."""
    yield to.head("GET", "/", "Connection: Upgrade", "Upgrade: websocket")


def once(to: Target) -> Iterator[bytes]:
    """One request a connection."""
    yield to.head("GET", "/config")


def health(to: Target) -> Iterator[bytes]:
    """Health checks one after the other."""
    yield from itertools.repeat(to.head("GET", "/v2/health/ready"), 1000)


def no_such_keys(to: Target) -> Iterator[bytes]:
    """Chunks of keys that are not there."""
    while True:
        yield to.head(
            "PUT", f"/keys/{secrets.token_hex(32)}?offset=0", "Content-Length: 1",
            "Content-Digest: sha-256=:LXEWQrcmsEQBYnyp++7+Nq6QAPSMaEDiuPKVtMJEoZg=:",
        ) + b"x"  # fmt: skip


def large_json(to: Target) -> Iterator[bytes]:
    """An announcement of 16 MiB."""
    yield to.head("POST", "/keys", f"Content-Length: {16 << 20}")
    yield from itertools.repeat(b"[" * (1 << 18), 64)


def large_chunks(to: Target) -> Iterator[bytes]:
    """A chunk of keys of 8 MiB that nearly ends."""
    yield to.head(
        "PUT", f"/keys/{secrets.token_hex(32)}?offset=0", f"Content-Length: {8 << 20}",
        "Content-Digest: sha-256=:LXEWQrcmsEQBYnyp++7+Nq6QAPSMaEDiuPKVtMJEoZg=:",
    )  # fmt: skip
    yield from itertools.repeat(b"x" * ((1 << 18) - 1), 32)
    yield from itertools.repeat(b"", 100)


def announced(to: Target) -> Iterator[bytes]:
    """Uploads that are announced and not sent."""
    while True:
        new = {"configuration": to.configuration, "size": 1, "sha256": secrets.token_hex(32)}
        yield to.json("/keys", json.dumps(new).encode())


def lists(to: Target) -> Iterator[bytes]:
    """The longest answers that cost the most."""
    while True:
        yield to.head("GET", "/jobs")
        yield to.head("GET", "/config")


def visitors(to: Target) -> Iterator[bytes]:
    """Tokens of a demonstration, and its page."""
    while True:
        yield to.json("/demo/visitors", b"")
        yield to.head("GET", "/")


STRANGERS: dict[str, Attack] = {
    "none": Attack(0, nothing),
    "small-chunks": Attack(8, small_chunks),
    "idle": Attack(400, nothing, 1.0),
    "slow-heads": Attack(300, slow_head, 0.2),
    "slow-bodies": Attack(64, slow_body),
    "long-heads": Attack(32, long_heads),
    "methods": Attack(64, methods),
    "ahead": Attack(32, ahead, reads=False),
    "no-http": Attack(32, no_http),
    "upgrades": Attack(32, upgrades),
    "once": Attack(32, once),
    "health": Attack(64, health),
    "visitors": Attack(16, visitors),
}
"""Attacks without a token."""
TENANTS: dict[str, Attack] = {
    "no-such-keys": Attack(16, no_such_keys),
    "large-json": Attack(8, large_json),
    "large-chunks": Attack(16, large_chunks, 0.01),
    "announced": Attack(16, announced),
    "lists": Attack(16, lists),
    "long-queries": Attack(16, long_queries),
    "unread": Attack(64, lists, reads=False),
    "tenant-methods": Attack(64, methods),
    "tenant-small-chunks": Attack(8, small_chunks),
    "tenant-slow-bodies": Attack(64, slow_body),
}
"""Attacks with a tenant's token."""
ATTACKS = {**STRANGERS, **TENANTS}


class _Connection:
    """One connection of an attack; opened again when it ends."""

    def __init__(self, name: str, target: Target, number: int) -> None:
        self.name, self.attack = name, ATTACKS[name]
        self.target, self.number = target, number
        self.socket: socket.socket | None = None
        self.rest, self.due = b"", 0.0

    def open(self) -> None:
        """Connect, and begin."""
        self.close()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.socket.bind((f"127.0.0.{2 + self.number % ADDRESSES}", 0))
        with suppress(BlockingIOError):
            self.socket.connect(("127.0.0.1", self.target.port))
        self.writes, self.rest = self.attack.sends(self.target), b""

    def close(self) -> None:
        """End it."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def step(self, writable: bool, now: float) -> int:
        """Read and write once; returns the number of writes."""
        assert self.socket is not None
        if self.attack.reads:
            with suppress(BlockingIOError):
                if not self.socket.recv(1 << 16):
                    raise ConnectionResetError
        if not writable or now < self.due:
            return 0
        if not self.rest:
            self.rest = next(self.writes)
            self.due = now + self.attack.pause
        if self.rest:
            self.rest = self.rest[self.socket.send(self.rest) :]
        return 1


def run(names: Sequence[str], target: Target, stranger: Target, seconds: float) -> dict[str, int]:
    """Attack until the time is over; returns the number of writes of each attack.

    On a machine with other work each attack has its turn: the time is at most five times as long.
    """
    begun, done = time.monotonic(), dict.fromkeys(names, 0)

    def attacking(now: float) -> bool:
        turn = all(n for name, n in done.items() if ATTACKS[name].connections)
        return now < begun + seconds * (1 if turn else 5)

    selector = selectors.DefaultSelector()
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    held = [
        _Connection(name, target if name in TENANTS else stranger, number)
        for name in names
        for number in range(ATTACKS[name].connections)
    ]
    again = list(held)
    while attacking(now := time.monotonic()):
        for one in again:
            with suppress(OSError):
                one.open()
                selector.register(one.socket or -1, both, one)
        again, before = [], sum(done.values())
        for key, mask in selector.select(0.1):
            try:
                done[key.data.name] += key.data.step(bool(mask & selectors.EVENT_WRITE), now)
            except (OSError, StopIteration):
                selector.unregister(key.fileobj)
                key.data.close()
                again.append(key.data)
        if sum(done.values()) == before:
            time.sleep(0.01)  # all pause; sockets can nearly always be written
    for one in held:
        one.close()
    return done


def main() -> None:
    """Attack as the words say."""
    names, port, seconds, *more = sys.argv[1:]
    os.nice(5)
    target, stranger = Target(int(port), *more), Target(int(port))
    print(json.dumps(run(names.split(","), target, stranger, float(seconds))))


if __name__ == "__main__":
    main()
