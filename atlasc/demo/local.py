"""The page of a visitor, served by this machine to this machine's browser alone.

The program holds a secret key, and other web pages can send requests to this machine. So the page
lies at an address that nobody can guess; a request must name this machine as its host, which a
rebound name of the DNS does not; and a question must carry a token that only the page knows, in a
header that other pages may not send.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from atlasc.api.errors import as_atlas_error
from atlasc.demo.visit import MAX_ASKED, Asked, Visit
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import parse_json, whole_number
from atlasc.report.pages import page

HOST = "127.0.0.1"
TOKEN = "X-Atlasc-Page"
"""The header with the page's token."""
BODY_SECONDS = 30.0
"""A browser that sends nothing for so long is gone."""


class VisitorPage(ThreadingHTTPServer):
    """The page, and the questions that it sends.

    Attributes:
        visit: answers the questions, one at a time.
        token: what the page's requests carry.
        url: the address of the page.
    """

    daemon_threads = True

    def __init__(self, visit: Visit, service: str, port: int = 0) -> None:
        """Listen on this machine.

        Args:
            service: address of the service.
            port: 0 takes a free one.

        Raises:
            AtlasError: the port cannot be used.
        """
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise AtlasError(
                f"port {port} of {HOST} cannot be used",
                why=str(error),
                remedy="choose another --port",
            ) from None
        self.visit, self.token, self.path = visit, secrets.token_hex(32), secrets.token_hex(16)
        self.asking = Lock()
        self._facts = {**visit.facts, "service": service, "header": TOKEN}
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}
        self.url = f"http://{HOST}:{self.server_port}/{self.path}/"

    def html(self, nonce: str) -> str:
        """The page; its script has the nonce."""
        facts = self._facts
        return page(
            "visitor.html",
            title=f"{facts['model']}: ask without showing",
            nonce=nonce,
            facts=facts,
            told={**facts, "token": self.token},
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: VisitorPage
    timeout = BODY_SECONDS

    def do_GET(self) -> None:
        """The page."""
        if not self._admitted(f"/{self.server.path}/"):
            return
        nonce = secrets.token_hex(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; "
            "connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        content = self.server.html(nonce).encode()
        self._begin(200, "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        self.wfile.write(content)

    def do_POST(self) -> None:
        """A question; the answer is one JSON object a line, as things happen."""
        if not self._admitted(f"/{self.server.path}/ask"):
            return
        token = self.headers.get(TOKEN, "")
        if not compare_digest(token.encode("latin-1", "replace"), self.server.token.encode()):
            self._refuse(403, "the request does not come from the page of this program")
            return
        size = whole_number(self.headers.get("Content-Length", ""))
        if size is None or size > MAX_ASKED:
            self._refuse(413, f"a question has at most {MAX_ASKED >> 20} MiB")
            return
        try:
            asked = parse_json(self.rfile.read(size), Asked)
        except ValueError as error:
            self._refuse(400, f"the question is not understood: {error}")
            return
        if not self.server.asking.acquire(blocking=False):
            self._refuse(409, "another question is not answered yet")
            return
        try:
            self._begin(200, "application/x-ndjson", {})
            self._answer(asked)
        finally:
            self.server.asking.release()

    def _answer(self, asked: Asked) -> None:
        try:
            self.server.visit.ask(asked, self._tell)
        except (BrokenPipeError, ConnectionResetError):  # the page was closed, or gave up
            return
        except Exception as error:
            known = as_atlas_error(error)
            if known is None:
                self._tell({"fault": f"internal error: {type(error).__name__}"})
                raise
            details = [f"{known.why}", f"{known.remedy}"]
            self._tell({"fault": known.what, "details": "\n".join(filter(None, details))})

    def _tell(self, event: Mapping[str, Any]) -> None:
        self.wfile.write(json.dumps(event, default=str).encode() + b"\n")
        self.wfile.flush()

    def _admitted(self, path: str) -> bool:
        """Whether this machine's browser asks for a path that is there; refused if not."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        if host not in self.server.hosts or origin not in (None, f"http://{host}"):
            self._refuse(403, "the request is for another machine, or from another page")
            return False
        if not compare_digest(self.path.encode("latin-1", "replace"), path.encode()):
            self._refuse(404, "there is nothing at this address; open the one that was printed")
            return False
        return True

    def _refuse(self, status: int, why: str) -> None:
        self._begin(status, "application/json", {})
        self._tell({"fault": why})

    def _begin(self, status: int, kind: str, more: Mapping[str, str]) -> None:
        always = {
            "Content-Type": kind, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin", "Connection": "close",
        }  # fmt: skip
        self.send_response(status)
        for name, value in {**always, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is logged: an address has the secret of the page."""
