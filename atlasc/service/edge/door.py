"""Who holds a connection: bounded places, of which the one that idles longest makes room.

A connection is known once a request with a valid token came over it. Who only waits loses the place
when somebody else needs it, strangers first; so connections that do nothing lock nobody out. If all
places have requests of tenants, further connections are asked for health alone.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from atlasc.service.edge.rates import Rates

PLACES = 256
"""Connections at once."""
SPARE = 32
"""Further ones, for health checks."""
SHARE = 128
"""Places of one address."""
ARRIVALS, BURST = 20.0, 100.0
"""New connections a second of one address, and at once; what exceeds them is closed."""
HEAD_SECONDS = 10.0
"""How long a stranger's connection waits for a whole request, TLS included; and, from then, until
the answer was taken."""
IDLE_SECONDS = 30.0
"""How long a known connection waits for its next request."""
REQUEST_SECONDS = 3600.0
"""How long a request of a tenant and its answer may take."""
_OWN = ("127.0.0.1", "::/64")
"""This machine's own address is that of proxies and health checks: all of them count as none."""
_IN_A_ROW = 4
"""Connections that are admitted or closed before the loop goes on with other work."""


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

    def set(self, seconds: float, *, busy: bool) -> None:
        """Begin to wait, or to work, for at most some seconds."""
        self.since, self.busy = time.monotonic(), busy
        self.until = self.since + seconds

    def admit(self) -> None:
        """Note that the request that runs has a valid token."""
        self.known = True
        self.set(REQUEST_SECONDS, busy=True)

    def end(self) -> None:
        """Close the connection: whoever reads from it sees its end."""
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
    _arrivals: Rates = field(default_factory=lambda: Rates(ARRIVALS, BURST))

    def admit(self, held: Held, host: str) -> bool:
        """Give a new connection a place; False if there is none."""
        address = address_of(host)
        if address not in self.trusted and address not in _OWN:
            if not self._arrivals.allows(address):
                return False
            mine = [place for place in self.places.values() if place.address == address]
            if len(mine) >= SHARE and not self._make_room(mine):
                return False
        places = list(self.places.values())
        ordinary = [place for place in places if not place.spare]
        spare = len(ordinary) >= PLACES and not self._make_room(ordinary)
        others = [place for place in places if place.spare]
        if spare and len(others) >= SPARE and not self._make_room(others):
            return False
        now = time.monotonic()
        place = Place(held, address, now + HEAD_SECONDS, now, spare=spare)
        held.place = self.places[held.fileno()] = place
        return True

    def sweep(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        for place in [place for place in self.places.values() if place.until < now]:
            self._close(place)

    def left(self, place: Place) -> None:
        """Note that a connection has ended."""
        if self.places.get(number := place.held.fileno()) is place:
            del self.places[number]

    def _make_room(self, places: Iterable[Place]) -> bool:
        """Close the connection that waits longest: strangers first, those without a request first.
        False if all have a request of a tenant.
        """
        found = [place for place in places if not (place.known and place.busy)]
        if not found:
            return False
        self._close(min(found, key=lambda place: (place.known, place.busy, place.since)))
        return True

    def _close(self, place: Place) -> None:
        place.end()
        self.left(place)


class Held(socket.socket):
    """A connection whose end is noted."""

    door: Door
    place: Place | None = None

    def close(self) -> None:
        """Close it, and give the place back."""
        if self.place is not None and self.fileno() >= 0:
            self.door.left(self.place)
        super().close()


class Listener(socket.socket):
    """A listening socket that admits connections before anything is read or encrypted."""

    door: Door
    _row = 0

    @classmethod
    def of(cls, listener: socket.socket, door: Door) -> Listener:
        """The listener in place of a plain one."""
        made = cls(fileno=listener.detach())
        made.door = door
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that has a place; others are closed at once."""
        while self._row < _IN_A_ROW:
            self._row += 1
            plain, peer = super().accept()
            held = Held(fileno=plain.detach())
            held.door = self.door
            if self.door.admit(held, str(peer[0])):
                return held, peer
            held.close()
        self._row = 0
        raise BlockingIOError  # the loop comes back for the rest


def address_of(host: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits that one customer gets."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
