"""Requests to a service, by the standard library: retried where that is safe, never redirected.

Every request of the protocol may be sent twice: a chunk has a place, a query is one job however
often it arrives. So a request whose answer was lost is simply sent again.
"""

from __future__ import annotations

import http.client
import ipaddress
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Timer
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from atlasc.api.errors import FULL
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, parse_json, read_text, require_private, whole_number
from atlasc.remote.wire import MAX_JSON, MAX_VALUES, Fault

Read = TypeVar("Read")
TIMEOUT = 120.0
"""Seconds without a byte after which a connection counts as lost."""
SLOWEST = 1 << 16
"""Bytes a second that a way to a service must carry, beside ``TIMEOUT`` for each exchange."""
PATIENCE = 60.0
"""Seconds for which a service that cannot be reached is asked again."""
LONGEST_WAIT = 60.0
"""Most seconds between two tries, whatever the service asks for."""
BUSY = 600.0
"""Seconds for which a service that says "later" is asked again."""
_AGAIN = (429, 502, 503, 504)
"""Full, or, of a proxy, a service that is starting; others ask for patience by ``Retry-After``."""


class Refused(AtlasError):
    """The service refused a request.

    Attributes:
        status: the HTTP status.
        wait: seconds after which the same request may succeed; None if it will not.
    """

    def __init__(self, status: int, fault: Fault, wait: float | None = None) -> None:
        super().__init__(fault.error, why=fault.why, remedy=fault.remedy)
        self.status, self.wait = status, wait


class Link:
    """A service at an address.

    Args:
        url: such as ``https://host:8000``; ``http`` for this machine only, as a token would travel
            in the clear.
        token: of the tenant; empty for what a service tells everybody.
        authority: certificates (PEM) that are trusted in place of the system's.

    Raises:
        AtlasError: the address cannot be used.
    """

    def __init__(self, url: str, token: str, authority: Path | None = None) -> None:
        place = urlsplit(url)
        try:
            host, port = place.hostname or "", place.port
        except ValueError:
            host, port = "", None
        if place.scheme not in ("http", "https") or not host or place.query or place.username:
            raise AtlasError(
                f"{url} is not the address of a service", remedy="write it as https://host:8000"
            )
        if place.scheme == "http" and not is_loopback(host):
            raise AtlasError(
                f"{url} has no TLS", why="the token would travel in the clear", remedy="use https"
            )
        if not token.isascii() or not token.isprintable():
            raise AtlasError("the token is damaged", remedy="copy it again")
        self.url, self._token, self._base = url.rstrip("/"), token, place.path.rstrip("/")
        if place.scheme == "https":
            context = _trusting(authority)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)

    def get(self, path: str, schema: type[Read], *, patience: float = PATIENCE) -> Read:
        """A JSON object of the service."""
        return self.send("GET", path, schema, patience=patience)

    def send(
        self,
        method: str,
        path: str,
        schema: type[Read],
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        queue: float = BUSY,
    ) -> Read:
        """Send a request, and read its JSON answer.

        Args:
            body, headers: of the request.
            patience: seconds for which a service that cannot be reached is asked again.
            queue: seconds for which a service that says "later" is asked again.

        Raises:
            Refused: the service refused the request.
            AtlasError: it cannot be reached, or its answer is not of the schema.
        """
        content = self.fetch(
            method, path, body, headers=headers, patience=patience, queue=queue, limit=MAX_JSON
        )
        try:
            return parse_json(content, schema, MAX_VALUES)
        except ValueError as error:
            raise AtlasError(
                f"the answer of {self.url} is not understood",
                why=str(error),
                remedy="use versions of atlasc that fit on both sides",
            ) from None

    def fetch(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        queue: float = BUSY,
        limit: int,
    ) -> bytes:
        """As :meth:`send`; the answer is at most ``limit`` bytes."""
        return self._patient(
            lambda: self._once(method, path, body, headers or {}, limit), patience, queue
        )

    def download(self, path: str, place: Path, limit: int) -> None:
        """Write a file of the service to a new place; the caller checks its digest.

        Raises:
            Refused: there is no such file.
            AtlasError: it is larger than ``limit`` bytes, or the service cannot be reached.
        """
        self._patient(lambda: self._download(path, place, limit), PATIENCE, BUSY)

    def _patient(self, attempt: Callable[[], Read], patience: float, queue: float) -> Read:
        """What an attempt gives: made again where the way breaks, or the service says "later"."""
        lost, full = time.monotonic() + patience, time.monotonic() + queue
        pause = 0.1
        while True:
            try:
                return attempt()
            except Refused as refused:
                if refused.wait is None or time.monotonic() + refused.wait > full:
                    raise
                time.sleep(refused.wait)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if getattr(error, "errno", None) in FULL:
                    raise  # a download that has no room here
                if isinstance(error, ssl.SSLCertVerificationError) or time.monotonic() > lost:
                    raise self._unreachable(error) from None
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    def _download(self, path: str, place: Path, limit: int) -> None:
        with self._within(MAX_JSON) as held:
            self._connection.request("GET", self._base + path, headers=self._headers())
            answer = self._connection.getresponse()
            refusal = _content(answer, MAX_JSON) if answer.status >= 300 else b""
        with answer:
            if answer.status >= 300:
                raise _refused(answer, refusal)
            told = answer.length
            if told is None or told > limit or told > shutil.disk_usage(place.parent).free:
                raise AtlasError(f"{place.name} of {self.url} is too large", why=f"{told} bytes")
            place.unlink(missing_ok=True)  # of an attempt that was cut
            with self._within(told, held), open(place, "xb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)
            if place.stat().st_size != told:
                raise http.client.IncompleteRead(b"")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _once(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], limit: int
    ) -> bytes:
        """The content of an answer."""
        told = {**self._headers(), **headers}
        with self._within(len(body) + limit):
            whole, answer = self._answer(method, path, body, told)
            content = _content(answer, limit + 1)
        with answer:
            if not whole or len(content) > limit:
                self._connection.close()
            if len(content) > limit:
                raise AtlasError(f"the answer of {self.url} is too large", why=f"above {limit}")
            if answer.length:
                raise http.client.IncompleteRead(content)
            if answer.status >= 300:
                raise _refused(answer, content)
            return content

    def _answer(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[bool, http.client.HTTPResponse]:
        """Whether a request was sent to its end, and the head of the answer: of a refusal alone,
        where a body was not taken.
        """
        try:
            self._connection.request(method, self._base + path, body or None, headers)
        except OSError as cut:
            with suppress(OSError, http.client.HTTPException):
                answer = self._connection.getresponse()
                if answer.status >= 300:
                    return False, answer
            raise cut
        return True, self._connection.getresponse()

    @contextmanager
    def _within(self, size: int, held: socket.socket | None = None) -> Iterator[socket.socket]:
        """Cut the connection when an exchange of so many bytes takes too long. A limit for each
        read is not enough: a byte now and then would hold the client for ever. The rest of an
        exchange is on ``held``, which the connection may have let go.
        """
        if held is None:
            if self._connection.sock is None:
                self._connection.connect()
            held = self._connection.sock
        late = Event()

        def cut() -> None:
            late.set()
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

        timer = Timer(TIMEOUT + size / SLOWEST, cut)
        timer.daemon = True
        timer.start()
        slow = f"it sends fewer than {SLOWEST >> 10} KiB a second"
        try:
            yield held
        except (OSError, http.client.HTTPException) as error:
            raise TimeoutError(slow) if late.is_set() else error from None
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError(slow)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _unreachable(self, error: Exception) -> AtlasError:
        return AtlasError(
            f"the service {self.url} cannot be reached",
            why=str(error) or type(error).__name__,
            remedy="check the address, and that the service runs; nothing that it accepted is lost",
        )


def address(*parts: str, **query: str) -> str:
    """A path of names, escaped."""
    text = "".join("/" + quote(part, safe="") for part in parts)
    return f"{text}?{urlencode(query)}" if query else text


def read_token(path: Path) -> str:
    """The token in a file that only its owner may read."""
    require_private(path)
    return read_text(path, 4096).strip()


def _content(answer: http.client.HTTPResponse, limit: int) -> bytes:
    """At most ``limit`` bytes of an answer. Chunks are read in blocks: of one whose size is
    negative, ``read`` would take all that comes.
    """
    if not answer.chunked:
        return answer.read(limit)
    found, block = bytearray(), memoryview(bytearray(min(limit, MIB)))
    while len(found) < limit and (size := answer.readinto(block[: limit - len(found)])):
        found += block[:size]
    return bytes(found)


def _refused(answer: http.client.HTTPResponse, content: bytes) -> Refused:
    try:
        fault = parse_json(content, Fault, MAX_VALUES)
    except ValueError:
        fault = Fault(error=f"the service answered with status {answer.status}")
    told, wait = whole_number(answer.headers.get("retry-after", "").strip()), None
    if told is not None or answer.status in _AGAIN:
        wait = min(max(1.0 if told is None else told, 0.5), LONGEST_WAIT)
    return Refused(answer.status, fault, wait)


def _trusting(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise AtlasError(f"{authority} holds no certificates", why=str(error)) from None


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, which others do not reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
