"""The visitor's own program: who may ask it, what it tells, and what leaves the machine."""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tiny_model import Tiny, make_text_bundle

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.demo.local import TOKEN, VisitorPage
from atlasc.demo.visit import MAX_ASKED, Asked, Visit, answer_of, picture
from atlasc.remote.connection import Connection
from atlasc.service.store import Store
from atlasc.service.tokens import revoke_token
from tests.atlasc.cli.command import refused
from tests.atlasc.demo.conftest import CLASSES, invite
from tests.atlasc.service.running import ROOT, Answer, Running, until

pytestmark = pytest.mark.filterwarnings("ignore:the target sim is a simulation")


def drawing() -> str:
    """A white stroke on black, as the page sends it."""
    image = Image.new("RGB", (64, 64))
    ImageDraw.Draw(image).rectangle((24, 0, 39, 63), "white")
    content = io.BytesIO()
    image.save(content, "PNG")
    return base64.b64encode(content.getvalue()).decode()


def call(
    page: VisitorPage, method: str = "POST", path: str = "ask", body: object = None, **headers: str
) -> Answer:
    """A request to the page's program; by default as the page itself sends it."""
    told = {"Host": f"127.0.0.1:{page.server_port}", TOKEN: page.token} | headers
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=60)
    try:
        place = path if path.startswith("/") else f"/{page.path}/{path}"
        connection.request(method, place, content if method == "POST" else None, told)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def events(answer: Answer) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.content
    return [json.loads(line) for line in answer.content.splitlines()]


def test_only_this_machine_and_the_page_itself(page: VisitorPage) -> None:
    assert page.server_address[0] == "127.0.0.1"
    answer = call(page, "GET", "")
    text = answer.content.decode()
    assert answer.status == 200 and page.token in text
    policy = answer.headers["content-security-policy"]
    nonce = re.search(r"'nonce-(\w+)'", policy)
    assert nonce is not None and f'<script nonce="{nonce[1]}">' in text
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert answer.headers["cache-control"] == "no-store"
    other = call(page, "GET", "").headers["content-security-policy"]
    assert other != policy, "a nonce is used once"
    body = {"image": drawing(), "drawing": True}
    rebound = f"evil.example:{page.server_port}"
    for host in (rebound, "127.0.0.1", "127.0.0.1:1", ""):
        assert call(page, "GET", "", Host=host).status == 403
        assert call(page, body=body, Host=host).status == 403
    assert call(page, "GET", "", Host=f"localhost:{page.server_port}").status == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{page.server_port}"):
        assert call(page, body=body, Origin=origin).status == 403
    for path in ("/", "/ask", f"/{'0' * 32}/", f"/{page.path}", f"/{page.path}/other"):
        answer = call(page, "GET", path)
        assert answer.status == 404 and page.token not in answer.content.decode()
    for token in ("", "0" * 64, page.token[:-1], page.path):
        assert call(page, body=body, **{TOKEN: token}).status == 403


def test_what_a_question_must_be(page: VisitorPage) -> None:
    assert call(page, body=b"[").status == 400
    assert call(page, body={"image": "", "more": 1}).status == 400
    assert call(page, body={"texts": ["a", "b", "c"]}).status == 400
    for length in (str(MAX_ASKED + 1), "9" * 5000, "-1", "1_0", "\xb2"):
        assert call(page, body=b"", **{"Content-Length": length}).status == 413
    for body, words in (
        ({"image": ""}, "there is no picture"),
        ({"image": "!"}, "there is no picture"),
        ({"texts": ["a text"]}, "there is no picture"),
        ({"image": base64.b64encode(b"no picture").decode()}, "cannot be read"),
    ):
        last = events(call(page, body=body))[-1]
        assert words in last["fault"], body


def test_a_drawing_is_answered(page: VisitorPage, shown: Tiny) -> None:
    found = events(call(page, body={"image": drawing(), "drawing": True}))
    stages = [one["stage"] for one in found if "stage" in one]
    assert list(dict.fromkeys(stages)) == ["encrypt", "send", "compute", "decrypt"]
    assert any("simulation" in one["warning"] for one in found if "warning" in one)
    (read,) = (one["input"] for one in found if "input" in one)
    pixels = np.frombuffer(base64.b64decode(read["pixels"]), np.uint8).reshape(8, 8, 3)
    column = np.array([0, 0, 0, 255, 255, 0, 0, 0])
    assert (pixels == column[None, :, None]).all() and (read["low"], read["high"]) == (0.0, 1.0)
    seen = {one["seen"]: one for one in found if "seen" in one}
    assert seen["query"]["bytes"] > 1000 and seen["answer"]["bytes"] > 1000
    told = seen["query"]["readable"]
    assert told["kind"] == "query" and told["query"] == seen["answer"]["readable"]["query"]
    (answer,) = (one["answer"] for one in found if "answer" in one)
    (output,) = answer["outputs"]
    assert tuple(output["classes"]) == CLASSES and answer["refused"] is None
    scaled = np.broadcast_to(column / 255, (1, 1, 8, 8)).astype(np.float32)
    expected = atlasc.load(shown.bundle).run({"pixel_values": scaled})
    np.testing.assert_allclose(output["values"], expected.outputs["output"][0], atol=1e-5)


def test_one_question_at_a_time(page: VisitorPage) -> None:
    with page.asking:
        assert call(page, body={"image": drawing(), "drawing": True}).status == 409
    assert events(call(page, body={"image": drawing()}))[-1]["answer"]["refused"] is None


def test_who_goes_away_leaves_no_job(page: VisitorPage, token: str, service: Running) -> None:
    told: list[Mapping[str, Any]] = []

    def gone(event: Mapping[str, Any]) -> None:
        told.append(event)
        if event.get("stage") == "compute":
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        page.visit.ask(Asked(image=drawing(), drawing=True), gone)
    (query,) = (one["readable"]["query"] for one in told if one.get("seen") == "query")
    store = service.state / "jobs"
    (job,) = (one for one in service.call("GET", "/jobs", token).json if one["query"] == query)
    assert job["state"] in ("cancelled", "done")
    until(lambda: not (store / job["id"]).exists())  # a worker that was writing removes it


def test_a_picture_of_a_message(page: VisitorPage) -> None:
    client = page.visit._service.client
    query = client.encrypt(np.zeros((1, 1, 8, 8), np.float32))
    found = picture(bytes(query))
    pixels = np.frombuffer(base64.b64decode(found["pixels"]), np.uint8)
    assert len(pixels) == found["width"] * found["height"] and found["bytes"] == len(query)
    assert pixels.tobytes()[:6] in bytes(query) or found["left_out"] > 0


def test_an_answer_that_cannot_be_right_shows_no_number() -> None:
    answers = SimpleNamespace(outputs={"logits": np.array([[1.0, np.nan]])})
    found = SimpleNamespace(answers=answers, classes=("a", "b"), refused={}, several=False)
    told = answer_of(cast("Any", found))
    assert told["outputs"][0]["values"] == [1.0, None]
    found.refused = {0: 0.5}
    told = answer_of(cast("Any", found))
    assert told["refused"] == 0.5 and told["outputs"][0]["values"] == []


def test_labels_that_count_each_by_itself_have_probabilities() -> None:
    """Of logits, and of an output that the client ended with a sigmoid."""
    logits = np.array([[2.0, -1.0, 0.0]])
    for function, values in ((None, logits), ("sigmoid", 1 / (1 + np.exp(-logits)))):
        answers = SimpleNamespace(outputs={"logits": values}, functions={"logits": function})
        found = SimpleNamespace(answers=answers, classes=("a", "b", "c"), refused={}, several=True)
        (told,) = answer_of(cast("Any", found))["outputs"]
        assert told["probabilities"] == pytest.approx([0.8808, 0.2689, 0.5], abs=1e-4)
    found.refused = {0: 0.5}
    assert answer_of(cast("Any", found))["outputs"][0]["probabilities"] == []


def test_a_model_that_a_page_cannot_ask(tmp_path: Path, tiny: Tiny) -> None:
    """Token ids without a tokenizer; images whose scale nobody tells."""
    bundle = load_bundle(make_text_bundle(tmp_path), "client")
    asked = SimpleNamespace(bundle=bundle, facts=SimpleNamespace(model="ids"))
    with pytest.raises(atlasc.AtlasError, match="cannot be asked in a page") as caught:
        Visit(cast("Connection", asked))
    assert "no tokenizer" in caught.value.why
    asked.bundle = load_bundle(tiny.bundle, "client")
    with pytest.raises(atlasc.AtlasError, match="does not say how images are scaled"):
        Visit(cast("Connection", asked))


def test_texts_and_pairs_are_answered(
    pairs_program: atlasc.Program, text_connection: Connection
) -> None:
    visit = Visit(text_connection)
    assert visit.kind == "text" and visit.pairs and visit.facts["sequence_length"] == 8
    told: list[Mapping[str, Any]] = []
    visit.ask(Asked(texts=("a cat", "on")), told.append)
    (read,) = (one["input"] for one in told if "input" in one)
    assert read["length"] == 8 and 3 < read["tokens"] <= 8
    (answer,) = (one["answer"] for one in told if "answer" in one)
    expected = pairs_program.run([("a cat", "on")]).outputs
    assert [one["name"] for one in answer["outputs"]] == list(expected)
    for output in answer["outputs"]:
        np.testing.assert_allclose(output["values"], expected[output["name"]][0], atol=1e-5)
    told.clear()
    visit.ask(Asked(texts=("cat " * 20,)), told.append)
    assert any("cut to 8 tokens" in one["warning"] for one in told if "warning" in one)
    with pytest.raises(atlasc.AtlasError, match="there is no text"):
        visit.ask(Asked(texts=(" ",)), told.append)


def test_a_visit_that_is_over(shown: Tiny, service: Running, tmp_path: Path) -> None:
    token = invite(service)
    with atlasc.connect(service.url, token=token, folder=tmp_path, allow_simulation=True) as found:
        store = Store(service.state)
        revoke_token(store, token)
        store.close()
        with pytest.raises(atlasc.AtlasError, match="does not know your token any more"):
            Visit(found).ask(Asked(image=drawing(), drawing=True), lambda event: None)


def test_the_command(service: Running, tmp_path: Path) -> None:
    """It makes keys, says where the page is, serves it, and ends with Ctrl-C; nobody gave a
    token.
    """
    folder = tmp_path / "folder"
    words = ["demo", service.url, "--folder", folder, "--no-open"]
    assert "encrypts nothing" in refused(*words)
    words.append("--allow-simulation")
    process = subprocess.Popen(
        [sys.executable, "-m", "atlasc", *map(str, words)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"open http://127\.0\.0\.1:(\d+)(/\w+/)\n", process.stdout.readline())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        connection.request("GET", found[2])
        answer = Answer(connection.getresponse())
        connection.close()
        assert answer.status == 200 and b"ask without showing" in answer.content
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    for path in (folder / "visitor.token", *(folder / "keys").rglob("*.key")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    taken = http.client.HTTPConnection("127.0.0.1", service.port).port
    assert "cannot be used" in refused(*words, "--port", taken)
