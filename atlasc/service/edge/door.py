"""Who holds a connection: bounded places, of which the one that idles longest makes room.

A connection is known once a request with a valid token came over it. Who only waits loses the place
when somebody else needs it, strangers first; so connections that do nothing lock nobody out. If all
places have requests of tenants, further connections are asked for health alone.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from atlasc.ir.files import KIB
from atlasc.service.edge.rates import Rates

PLACES = 256
"""Connections at once."""
SPARE = 32
"""Further ones, for health checks."""
SHARE = 128
"""Places of one address."""
NEW = 64
"""Places of connections without a whole head so far. While one makes its handshake, OpenSSL may
keep 128 KiB for it."""
ARRIVALS, BURST = 20.0, 100.0
"""New connections a second of one address, and at once; what exceeds them is closed."""
HEAD_SECONDS = 10.0
"""How long a stranger's connection waits for a whole request, TLS included; and, from then, until
the answer was taken."""
RECENT = 1.0
"""How long a connection is new: others make room before it, so that its request can come."""
IDLE_SECONDS = 30.0
"""How long a known connection waits for its next request."""
FIRST, PIECE = 32 * KIB, 16 * KIB
"""Bytes that a connection may send until the head of its first request has come whole, TLS
included, and how many are read at once until then."""
REQUEST_SECONDS = 3600.0
"""How long a request of a tenant and its answer may take."""
MOST_NAME = 45
"""Characters of an address; what a proxy passes on may be none, and of any length."""
_OWN = ("127.0.0.1", "::/64")
"""This machine's own address is that of proxies and health checks: all of them count as none."""
_ADMITTED, _CLOSED = 16, 256
"""Connections that are admitted, and that are closed, before the loop goes on with other work. It
reads a first request four turns after the admission; by then NEW others must not have come. Fewer
at once would make more handshakes of TLS begin, whose memory OpenSSL keeps."""


@dataclass(eq=False)
class Place:
    """A connection.

    Attributes:
        address: see :func:`address_of`.
        until: time at which it is closed.
        known: whether a valid token came over it.
        busy: whether a request runs.
        spare: whether it is beyond the limits, and asks for health alone.
        since: time of its last change.
    """

    held: Held
    address: str
    until: float
    since: float
    known: bool = False
    busy: bool = False
    spare: bool = False

    @property
    def new(self) -> bool:
        """Whether no request came over it so far."""
        return self.held.left is not None

    def set(self, seconds: float, *, busy: bool) -> None:
        """Begin to wait, or to work, for at most some seconds."""
        self.since, self.busy = time.monotonic(), busy
        self.until = self.since + seconds

    def admit(self) -> None:
        """Note that the request that runs has a valid token."""
        self.known = True
        self.set(REQUEST_SECONDS, busy=True)

    def end(self) -> None:
        """Close the connection: its reader sees the end, and nothing that came before."""
        self.held.left = 0
        with suppress(OSError):
            self.held.shutdown(socket.SHUT_RDWR)


@dataclass
class Door:
    """All connections of a service; for the event loop's thread alone.

    Attributes:
        trusted: addresses of proxies in front, which count as no address of their own.
        places: number of the socket -> connection.
    """

    trusted: frozenset[str] = frozenset()
    places: dict[int, Place] = field(default_factory=dict)
    _of: Counter[str] = field(default_factory=Counter)
    _spare: int = 0
    _arrivals: Rates = field(default_factory=lambda: Rates(ARRIVALS, BURST))

    def admit(self, host: str, make: Callable[[], Held]) -> Held | None:
        """Make a connection of an address, and give it a place; None if there is none."""
        address = address_of(host)
        if address not in self.trusted and address not in _OWN:
            if not self._arrivals.allows(address):
                return None
            mine = self._of[address] >= SHARE
            if mine and not self._make_room(lambda place: place.address == address):
                return None
        if sum(place.new for place in self.places.values()) >= NEW:
            self._make_room(lambda place: place.new)
        full = len(self.places) - self._spare >= PLACES
        spare = full and not self._make_room(self._may_end())
        if spare and self._spare >= SPARE and not self._make_room(lambda place: place.spare):
            return None
        held, now = make(), time.monotonic()
        held.door = self
        place = Place(held, address, now + HEAD_SECONDS, now, spare=spare)
        held.place = self.places[held.fileno()] = place
        self._of[address] += 1
        self._spare += spare
        return held

    def sweep(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        for place in [place for place in self.places.values() if place.until < now]:
            self._close(place)

    def left(self, place: Place) -> None:
        """Note that a connection has ended."""
        if self.places.get(number := place.held.fileno()) is place:
            del self.places[number]
            self._spare -= place.spare
            self._of[place.address] -= 1
            if not self._of[place.address]:
                del self._of[place.address]

    def _may_end(self) -> Callable[[Place], bool]:
        """Which connections may end where all places are taken: none of strangers that have just
        come, unless these are many. So tenants that wait push out no health check.
        """
        recent = time.monotonic() - RECENT
        young = {
            place for place in self.places.values() if not place.known and place.since > recent
        }
        kept = young if len(young) < NEW else set()
        return lambda place: not place.spare and place not in kept

    def _make_room(self, among: Callable[[Place], bool]) -> bool:
        """Close, among some connections, the one that waits longest: strangers first, those that
        had time to send a request first, those without a request first. False if all have a
        request of a tenant.
        """
        recent = time.monotonic() - RECENT
        waiting = (place for place in self.places.values() if not (place.known and place.busy))
        found = [place for place in waiting if among(place)]
        if not found:
            return False

        def order(place: Place) -> tuple[bool, bool, bool, float]:
            return place.known, place.since > recent, place.busy, place.since

        self._close(min(found, key=order))
        return True

    def _close(self, place: Place) -> None:
        place.end()
        self.left(place)


class Held(socket.socket):
    """A connection whose end is noted, and which ends where its first request is too long.

    Attributes:
        left: bytes that may come before the first request; None after it.
    """

    door: Door
    place: Place | None = None
    left: int | None = FIRST

    def recv(self, size: int, flags: int = 0) -> bytes:
        """What came; nothing, as at the end, where too much did."""
        if self.left is None:
            return super().recv(size, flags)
        found = super().recv(min(size, PIECE), flags) if self.left > 0 else b""
        self.left -= len(found)
        return found

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        """As :meth:`recv`."""
        if self.left is None:
            return super().recv_into(buffer, size, flags)
        most = min(size or len(buffer), PIECE)
        found = super().recv_into(buffer, most, flags) if self.left > 0 else 0
        self.left -= found
        return found

    def close(self) -> None:
        """Close it, and give the place back."""
        if self.place is not None and self.fileno() >= 0:
            self.door.left(self.place)
        super().close()


class Listener(socket.socket):
    """A listening socket that admits connections before anything is read or encrypted."""

    door: Door
    _kind: tuple[int, int, int]
    _admitted = _closed = 0

    @classmethod
    def of(cls, listener: socket.socket, door: Door) -> Listener:
        """The listener in place of a plain one."""
        made = cls(fileno=listener.detach())
        made.door, made._kind = door, (int(made.family), int(made.type), made.proto)
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that has a place; others are closed at once."""
        while self._admitted < _ADMITTED and self._closed < _CLOSED:
            # Python's own accept makes a socket first, and most are closed at once in an attack.
            number, peer = self._accept()  # type: ignore[attr-defined]
            held = self.door.admit(str(peer[0]), partial(Held, *self._kind, fileno=number))
            if held is not None:
                self._admitted += 1
                return held, peer
            os.close(number)
            self._closed += 1
        self._admitted = self._closed = 0
        raise BlockingIOError  # the loop comes back for the rest


@lru_cache(maxsize=4096)
def address_of(host: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits that one customer gets."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:MOST_NAME]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
