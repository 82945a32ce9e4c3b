"""A demonstration of the simulated tiny model, with names of classes and a processor of images; and
a visitor of it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tiny_model import Tiny, make_tiny

import atlasc
from atlasc.demo.local import VisitorPage
from atlasc.demo.visit import Visit
from atlasc.remote.connection import Connection, connect
from tests.atlasc.service.running import Running

CLASSES = ("calm", "glad", "sad")
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor", "do_convert_rgb": False, "do_resize": True,
    "size": {"height": 8, "width": 8}, "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": False,
}  # fmt: skip


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny model with the files that a page needs beside it."""
    folder = tmp_path_factory.mktemp("shown")
    names = {str(number): name for number, name in enumerate(CLASSES)}
    (folder / "config.json").write_text(json.dumps({"id2label": names}))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return make_tiny(folder, "sim")


@pytest.fixture(scope="module")
def service(shown: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("demo") / "state", shown.bundle, "--demo")
    yield found
    found.kill()


def invite(service: Running) -> str:
    """A new visitor's token."""
    answer = service.call("POST", "/demo/visitors")
    assert answer.status == 201, answer.content
    return str(answer.json["token"])


@pytest.fixture(scope="module")
def token(service: Running) -> str:
    """A visitor's."""
    return invite(service)


@pytest.fixture(scope="module")
def connection(
    service: Running, token: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("visitor")
    with connect(service.url, token=token, folder=folder, allow_simulation=True) as found:
        yield found


@pytest.fixture(scope="module")
def text_service(
    pairs_program: atlasc.Program, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("texts") / "state"
    # Keys of the simulator take no memory; those that are announced would.
    found = Running(state, pairs_program.folder, "--demo", "--memory", "20G")
    yield found
    found.kill()


@pytest.fixture(scope="module")
def text_connection(
    text_service: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("reader")
    token = invite(text_service)
    with connect(text_service.url, token=token, folder=folder, allow_simulation=True) as found:
        yield found


@contextmanager
def served(connection: Connection, service: str) -> Iterator[VisitorPage]:
    """The page of a visitor, answered by a thread of this process."""
    with VisitorPage(Visit(connection), service) as page:
        thread = threading.Thread(target=page.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield page
        finally:
            page.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def page(connection: Connection, service: Running) -> Iterator[VisitorPage]:
    with served(connection, service.url) as found:
        yield found
