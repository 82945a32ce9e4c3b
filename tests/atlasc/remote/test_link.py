"""The way to a service: the given address, whatever the environment says."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from atlasc.remote.link import Link


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "11")
        self.end_headers()
        self.wfile.write(b'{"here": 1}')

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
def test_proxies_of_the_environment_are_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        link = Link(f"http://127.0.0.1:{server.server_port}", "")
        assert link.get("/", dict[str, int]) == {"here": 1}
        thread.join()
