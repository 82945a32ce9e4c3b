"""``atlasc demo``: ask a service in a page of your own machine."""

from __future__ import annotations

import os
import signal
import webbrowser
from contextlib import suppress

from atlasc.cli.commands.query import ServiceOptions, Url
from atlasc.cli.output import print_product, show
from atlasc.compilation.declared import option, switch


def demo(
    url: Url,
    service: ServiceOptions,
    port: int = option("Port of the page; 0 takes a free one.", default=0, minimum=0),
    no_open: bool = switch("Print the address of the page, and open no browser."),
) -> None:
    """Draw a digit or type a text in a page; a service answers it encrypted.

    This program serves the page to this machine alone. It makes the keys, encrypts and decrypts;
    the secret key stays in the folder. Without a token it asks the service for one of a visitor
    (atlasc serve --demo). It ends with Ctrl-C.
    """
    _require_extra()
    from atlasc.demo.invitation import with_visitor_token
    from atlasc.demo.local import VisitorPage
    from atlasc.demo.visit import Visit
    from atlasc.remote.connection import TOKEN_VARIABLE

    token = service.token or os.environ.get(TOKEN_VARIABLE)
    connection = (
        service.connect(url, token, text=False)
        if token
        else with_visitor_token(
            url,
            service.folder,
            service.tls_ca,
            lambda found: service.connect(url, found, text=False),
        )
    )
    with connection, VisitorPage(Visit(connection), url, port) as page, suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print_product(f"open {page.url}")
        show("note", "this address works on this machine alone; the program ends with Ctrl-C")
        if not no_open and _has_display():
            webbrowser.open(page.url)
        page.serve_forever()


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _require_extra() -> None:
    from importlib.util import find_spec

    from atlasc.ir.errors import AtlasError

    missing = [name for name in ("jinja2", "transformers") if find_spec(name) is None]
    if missing:
        raise AtlasError(
            f"the library {missing[0]} is not installed",
            why="the page is made by jinja2, and pictures are read by transformers",
            remedy="pip install 'WHEEL[demo]', with the path of atlasc's wheel or clone for WHEEL",
        )
