"""uvicorn's protocol for HTTP with bounds on what a connection costs while it is read.

uvicorn and h11 bound the head of a request (16 KiB) and how much of a body waits in memory. They do
not bound time, nor how many lines a head and how many pieces a body has, and a line takes some 2
microseconds, a piece 20.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import h11
from h11._readers import ChunkedReader
from uvicorn.protocols.http.h11_impl import H11Protocol

from atlasc.service.edge.door import HEAD_SECONDS, IDLE_SECONDS, Door, Place

LINES = 100
"""Most lines of a head, and of what may follow the last chunk of a body."""
CHUNKS, LEAST_CHUNK = 16, 1024
"""A body in more chunks than this must have so many bytes a chunk."""
SMALL = 4096
"""Bytes below which what was read counts as small."""
SMALL_PAUSE = 0.001
"""Seconds for which a connection is not read after it brought little, for each connection there
is: all together bring at most a thousand small pieces a second, and the kernel joins the others."""
REST, LONGEST_REST = 0.005, 0.25
"""As above, and the longest, after a health check or a request too many of a tenant."""
AHEAD = 16 << 10
"""Bytes of further requests that may come before the answer to one."""
PLACE, HEALTH, RESTS = "place", "health", "rests"
"""Members of a request's state: its connection's place; it was a health check; the connection rests
after it."""
UNREAD = 1 << 20
"""Bytes of a refused body that are taken of a stranger; others wait."""
READ_SECONDS = 2.0
"""How long the others wait: until then the refusal was read."""
UNREAD_SECONDS = 120.0
"""How long a tenant may still send a body that was refused."""


_BLANK = re.compile(rb"\n\r?\n")


def _lines(content: bytes) -> int:
    """Number of lines up to the first empty one."""
    if content.startswith((b"\n", b"\r\n")):
        return 0
    return _BLANK.split(content, 1)[0].count(b"\n")


class _Chunks(ChunkedReader):
    """Reads a body in chunks; h11 parses what follows the last one like a head."""

    def __call__(self, buf: Any) -> Any:
        """The next event, if it has come whole.

        Raises:
            RemoteProtocolError: many lines follow the last chunk.
        """
        if self._reading_trailer and _lines(bytes(buf)) > LINES:
            raise h11.RemoteProtocolError("too many lines follow the body")
        return super().__call__(buf)


class Careful(h11.Connection):
    """A connection that refuses heads of many lines, bodies in many small chunks, and bodies whose
    end a proxy in front may see elsewhere.
    """

    _chunks = 0
    _bytes = 0

    def next_event(self) -> Any:
        """The next event.

        Raises:
            RemoteProtocolError: the lines of a head, or after a body, are many, or the chunks of a
                body many and small; or a body has two lengths.
        """
        if self.their_state is h11.IDLE and _lines(self.trailing_data[0]) > LINES:
            raise h11.RemoteProtocolError("the head has too many lines")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
            told = {name for name, _ in event.headers}
            if b"transfer-encoding" in told and (
                b"content-length" in told or event.http_version < b"1.1"
            ):
                raise h11.RemoteProtocolError("the body has two lengths")
            if isinstance(self._reader, ChunkedReader):
                self._reader = _Chunks()
        elif isinstance(event, h11.Data):
            self._chunks += bool(event.chunk_start)
            self._bytes += len(event.data)
            if self._chunks > CHUNKS and self._bytes < LEAST_CHUNK * self._chunks:
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event


class _Lasting:
    """The transport of an answer. Where the connection ends with it ("Connection: close") but the
    request has not come whole, an end at once would overtake the answer: the system tells the
    other side of a reset, which throws away what it has not read.
    """

    def __init__(self, of: HttpConnection) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of.transport, name)

    def close(self) -> None:
        """End the connection, once the request has come whole or its time is over."""
        done = self._of.cycle is not None and self._of.cycle.response_complete
        if done and self._of.conn.their_state is h11.SEND_BODY:
            self._of.ends = True
        else:
            self._of.transport.close()


class HttpConnection(H11Protocol):
    """One connection.

    Attributes:
        ends: whether it ends once the request has come whole.
    """

    ends = False

    def __init__(self, *given: Any, door: Door, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = Careful(h11.SERVER)
        self._door, self._unread = door, -1
        self._place: Place | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection that lost its place meanwhile is closed."""
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        self._place = None if found is None else self._door.places.get(found.fileno())
        if self._place is None:
            transport.abort()
            return
        self.app_state = {**self.app_state, PLACE: self._place}

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it is the rest of what was refused."""
        if self._unread >= 0:
            self._unread -= len(data)
            if self._unread < 0:  # an end now would overtake the refusal
                self.flow.pause_reading()
                self.loop.call_later(READ_SECONDS, self.transport.abort)
            return
        super().data_received(data)
        if self.ends and self.conn.their_state is not h11.SEND_BODY:
            self.transport.close()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) > AHEAD:
            self.transport.abort()
        elif len(data) < SMALL:
            self._rest(SMALL_PAUSE * len(self._door.places), self._read_on)

    def handle_events(self) -> None:
        """Parse, and note that a request runs; it is a stranger's until its token was seen."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not None and self.cycle is not before:
            self.cycle.transport = _Lasting(self)  # type: ignore[assignment]
        if self._place is not None and self.cycle is not before:
            self._place.known = False
            self._place.held.left = None
            self._place.set(HEAD_SECONDS, busy=True)

    def on_response_complete(self) -> None:
        """Wait for the next request of a known connection; end a stranger's, once its request has
        come whole, so that the answer is not lost.
        """
        if self.cycle is None or self._place is None or self.transport.is_closing():
            super().on_response_complete()
            return
        state, place = self.cycle.scope["state"], self._place
        place.set(IDLE_SECONDS if place.known else HEAD_SECONDS, busy=False)
        if not place.known and HEALTH not in state:
            self._unread = UNREAD  # nothing more of this connection is parsed
            self.flow.resume_reading()
            if self.conn.their_state is not h11.SEND_BODY:
                self.transport.close()
            return
        if self.conn.their_state is h11.SEND_BODY:
            place.set(UNREAD_SECONDS, busy=False)  # uvicorn skips the rest
        if HEALTH in state or RESTS in state:
            self._rest(min(REST * len(self._door.places), LONGEST_REST), self._next)
        else:
            super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, if nothing was answered yet; end the connection."""
        cycle = self.cycle
        started = False
        if cycle is not None and not cycle.response_complete:
            started = cycle.response_started
            cycle.disconnected = True  # who answers the request sees that the client has gone
            cycle.message_event.set()
        if not started and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of what was read and not parsed: the garbage collector may come late."""
        super().connection_lost(exc)
        self.conn = Careful(h11.SERVER)
        if self.cycle is not None:
            self.cycle.conn, self.cycle.body = self.conn, bytearray()

    def _rest(self, seconds: float, then: Callable[[], None]) -> None:
        """Do not read for a while."""
        self.transport.pause_reading()
        self.loop.call_later(seconds, then)

    def _next(self) -> None:
        self._read_on()
        super().on_response_complete()

    def _read_on(self) -> None:
        if not self.transport.is_closing() and not self.flow.read_paused:
            self.transport.resume_reading()
