"""A service that tries everything a bundle and an answer may say: the client ends with a clear
refusal, and has sent nothing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.bundle import signing
from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import INTERFACE_FILE
from atlasc.ir.errors import AtlasError
from tests.atlasc.cli.command import refused, run
from tests.atlasc.remote.conftest import SPEAKS
from tests.atlasc.remote.hostile import RAW, Hostile, Lie, endless, forged, hostile

pytestmark = pytest.mark.filterwarnings("ignore:the target sim is a simulation")
INTERFACE, EMBED = INTERFACE_FILE, "client/embed.air"
MASK = '{"name": "attention_mask", "shape": [2, 6]}'
Edit = Callable[[str], str]


def asked(service: Hostile, folder: Path, inputs: object, **options: object) -> None:
    """What a user does: connect, and ask."""
    with atlasc.connect(
        service.url, token="atlasc_x", folder=folder, note=lambda *_: None,
        **{"allow_simulation": True, **options},
    ) as connection:  # fmt: skip
        connection.query(inputs)


def public(name: str, shape: str = "[2, 6]") -> str:
    return f'{{"name": "{name}", "shape": {shape}}}'


def replaced(before: str, after: str) -> Edit:
    return lambda text: text.replace(before, after)


def beside(name: str, shape: str = "[2, 6]") -> Edit:
    """One more public input."""
    return replaced(MASK, f"{public(name, shape)}, {MASK}")


EMPTY = """module @text : {0} {{
  %x = {0}.input {{name = "x", shape = [2, 6], side = "client", dtype = "f64"}} :
    tensor<2x6xf64, client>
  {0}.output %x {{name = "y"}}
}}
"""


BUNDLES: dict[str, tuple[dict[str, Edit], str]] = {
    "ids in place of the mask": ({INTERFACE: replaced(MASK, public("input_ids"))}, "in the clear"),
    "ids beside the mask": ({INTERFACE: beside("input_ids")}, "in the clear"),
    "segments": ({INTERFACE: beside("token_type_ids")}, "in the clear"),
    "a new name": ({INTERFACE: beside("q")}, "in the clear"),
    "a mask that is embedded": (
        {EMBED: replaced('name = "input_ids"', 'name = "attention_mask"')}, "in the clear"
    ),
    "a mask of no text": (
        {INTERFACE: replaced(MASK, public("attention_mask", "[2, 60]"))}, "in the clear"
    ),
    "a mask of vectors": (
        {INTERFACE: replaced(MASK, public("attention_mask", "[2, 6, 8]"))}, "in the clear"
    ),
    "a position without a mask": ({INTERFACE: replaced(MASK, public("position"))}, "in the clear"),
    "a position of no text": ({INTERFACE: beside("position", "[2, 99]")}, "in the clear"),
    "another batch": ({"manifest.json": replaced('"batch": 2', '"batch": 3')}, "inputs a run"),
    "a file elsewhere": (
        {"manifest.json": replaced('"client/embed.air"', '"client/../../x"')}, "is damaged"
    ),
    "weak parameters": (
        {"manifest.json": lambda text: re.sub('(_bits": )[0-9]+', r"\g<1>9", text)},
        "bits of security",
    ),
    "no such target": ({"manifest.json": replaced('"sim"', '"none"')}, "no target"),
    "a target that computes nothing": (
        {"manifest.json": replaced('"target": "sim"', '"target": "count"')},
        "no client and no server",
    ),
    "an embedding of polynomials": ({EMBED: lambda _: EMPTY.format("poly")}, "no client's part"),
    "an interface of nothing": ({INTERFACE: lambda _: "{}"}, "has format 0"),
    "an op of nobody": ({EMBED: replaced("nn.layer_norm", "nn.system")}, "nn.system"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUNDLES)
def test_a_hostile_bundle(text_bundle: Path, tmp_path: Path, name: str) -> None:
    edits, words = BUNDLES[name]
    bundle = forged(text_bundle, tmp_path / "bundle", {**SPEAKS, **edits})
    with hostile(bundle) as service, pytest.raises(AtlasError, match=words):
        asked(service, tmp_path / "folder", ["q"])
    assert not service.sent and not list((tmp_path / "folder").rglob("*.key"))


def test_a_letter_does_not_leave(text_bundle: Path, tmp_path: Path) -> None:
    """The issue's own case, by every command that reads such a bundle."""
    edits = {**SPEAKS, INTERFACE: replaced(MASK, public("input_ids"))}
    bundle = forged(text_bundle, tmp_path / "bundle", edits)
    (tmp_path / "texts.txt").write_text("q\n")
    keys, told = tmp_path / "keys", []
    words = ("--input", tmp_path / "texts.txt")
    told.append(refused("keygen", bundle, "-o", keys))
    assert run("keygen", text_bundle, "-o", keys)
    told.append(refused("encrypt", bundle, *words, "--keys", keys, "-o", tmp_path / "query"))
    told.append(refused("embed", bundle, *words, "-o", tmp_path / "inputs.safetensors"))
    with pytest.raises(AtlasError) as caught:
        atlasc.Client(bundle, keys).encrypt(["q"])
    for one in (*told, str(caught.value)):
        assert "asks for an input in the clear" in one and "input_ids [2, 6]" in one
    assert not (tmp_path / "query").exists()


def test_data_without_a_name_is_private(text_bundle: Path, tmp_path: Path) -> None:
    """A bundle whose embedding reads the mask first gets no bare array for it."""
    first = '%attention_mask = nn.input {name = "attention_mask", shape = [2, 6], side = "public", '
    first += 'dtype = "i64"} : tensor<2x6xi64, public>\n  '
    edits = {EMBED: lambda text: text.replace("%input_ids = ", f"{first}%input_ids = ", 1).replace(
        '"input_ids"', '"x"')}  # fmt: skip
    bundle = forged(text_bundle, tmp_path / "bundle", edits)
    model = atlasc.load(bundle).bundle.model
    assert model.input_names[0] == "x"


def test_a_position_is_one_place(text_bundle: Path, tmp_path: Path) -> None:
    bundle = forged(text_bundle, tmp_path / "bundle", {INTERFACE: beside("position")})
    client = atlasc.load(bundle).bundle.client
    ids = np.ones((2, 6), np.int64)
    arrays = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": ids}
    for place, words in ((ids, "not one place but 6"), (2 * ids, "no mask"), (0 * ids, "no token")):
        with pytest.raises(AtlasError, match=words):
            client.query({**arrays, "position": place})
    assert client.query({**arrays, "position": np.eye(6, dtype=np.int64)[:2]}).count == 2


# --- the target


def test_a_target_that_does_not_encrypt(tiny: Tiny, tmp_path: Path) -> None:
    pixels, folder = np.zeros((1, 1, 8, 8), np.float32), tmp_path / "folder"
    with hostile(tiny.bundle) as service:
        with pytest.raises(AtlasError, match="its target sim encrypts nothing") as caught:
            asked(service, folder, pixels, allow_simulation=False)
        assert "--allow-simulation" in caught.value.remedy or "allow_simulation" in (
            caught.value.remedy
        )
        (tmp_path / "token").write_text("atlasc_x\n")
        (tmp_path / "token").chmod(0o600)
        words = ("--input", tiny.data, "--token-file", tmp_path / "token", "--folder", folder)
        assert "encrypts nothing" in refused("query", service.url, *words)
    assert not service.sent and not list(folder.rglob("*.key"))
    words = "another target of its program"
    with hostile(tiny.bundle, target="cpu") as service, pytest.raises(AtlasError, match=words):
        asked(service, folder, pixels)
    assert not service.sent


def test_the_folder_keeps_its_target(tiny: Tiny, tmp_path: Path) -> None:
    """No update changes it, and no permission for a rehearsal."""
    folder, pixels = tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32)
    with hostile(tiny.bundle) as service:
        with pytest.raises(AtlasError, match="is damaged"):
            asked(service, folder, pixels)  # its answer is none
        record = (folder / "service.json").read_text()
        assert '"target": "sim"' in record
        (folder / "service.json").write_text(record.replace('"sim"', '"cpu"'))
        sent = len(service.sent)
        with pytest.raises(AtlasError, match="is for programs of the target cpu"):
            asked(service, folder, pixels, update=True)
        assert len(service.sent) == sent


def test_the_folder_keeps_its_maker(tiny: Tiny, tmp_path: Path) -> None:
    """Later programs need the signature too, although nobody asks for it again."""
    mine, theirs = (signing.make_key(tmp_path / name, "") for name in ("mine", "theirs"))
    bundle = shutil.copytree(tiny.bundle, tmp_path / "bundle")
    signing.sign(load_bundle(bundle), tmp_path / "mine", "")
    folder, pixels = tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32)
    with hostile(bundle) as service:
        with pytest.raises(AtlasError, match="is damaged"):
            asked(service, folder, pixels, signed_by=mine)  # its answer is none
        sent = len(service.sent)
        with pytest.raises(AtlasError, match="programs that another key signed"):
            asked(service, folder, pixels, signed_by=theirs)
        with pytest.raises(AtlasError, match="does not have the signature"):
            asked(service, folder, pixels, signed_by=theirs, update=True)
        edit = replaced('"model": "', '"model": "x')
        service.bundle = forged(bundle, tmp_path / "other", {INTERFACE: edit})
        shutil.rmtree(folder / "programs")
        for options in ({}, {"update": True}):
            with pytest.raises(AtlasError, match="is not signed"):
                asked(service, folder, pixels, **options)
        assert len(service.sent) == sent


# --- what it says


def head(line: str) -> Lie:
    """A first line, and nothing after it."""
    return lambda handler: handler.wfile.write(f"{line}\r\nContent-Length: 0\r\n\r\n".encode())


CONFIG = ("GET", "/config")
SAYINGS: dict[str, tuple[tuple[str, str], Lie, str]] = {
    "no JSON": (CONFIG, (200, b"{"), "not understood"),
    "other members": (CONFIG, (200, {"a": 1}), "not understood"),
    "deep": (CONFIG, (200, b"[" * 10**6), "not understood"),
    "an escape": (CONFIG, (400, {"error": "\x1b[2J"}), r"\\x1b"),
    "elsewhere": (CONFIG, head("HTTP/1.1 302 Found"), "status 302"),
    "no HTTP": (CONFIG, head("SSH-2.0"), "cannot be reached"),
    "no end of the body": (CONFIG, endless(b" "), "cannot be reached"),
    "no end of the headers": (CONFIG, endless(b"X", b"HTTP/1.1 200 OK\r\n"), "cannot be reached"),
    "to be continued": (
        CONFIG, endless(b"HTTP/1.1 100 Continue\r\n\r\n", b""), "cannot be reached"
    ),
    "a part without an end": (
        ("GET", ".*/embed.safetensors"),
        endless(b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"),
        "cannot be reached",
    ),
    "a part without an end, on a connection that was let go": (
        ("GET", ".*/embed.safetensors"),
        endless(b"x", b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"),
        "cannot be reached",
    ),
    "a part of a petabyte": (
        ("GET", ".*/embed.safetensors"),
        endless(b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\n"),
        "too large",
    ),
    "another part": (("GET", ".*/embed.safetensors"), (200, b"x"), "was changed after"),
    "a manifest of another": (("GET", ".*/manifest.json"), (200, {"format": 3}), "is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAYINGS)
def test_a_service_that_says_anything(tiny: Tiny, tmp_path: Path, name: str, hasty: None) -> None:
    request, lie, words = SAYINGS[name]
    with hostile(tiny.bundle, {request: lie}) as service, pytest.raises(AtlasError, match=words):
        asked(service, tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32))
    assert not service.sent and not list((tmp_path / "folder").rglob("*.key"))


@pytest.mark.parametrize("size", [0, -1, 100, 2**54, "many"])
def test_chunks_of_any_size(tiny: Tiny, tmp_path: Path, size: object) -> None:
    with hostile(tiny.bundle) as service:
        service.lies[CONFIG] = (200, {**service.config, "chunk_bytes": size})
        with pytest.raises(AtlasError, match="not understood"):
            asked(service, tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32))
    assert not service.sent


def test_one_chunk_for_all_keys_is_not_read_at_once(tiny: Tiny, tmp_path: Path) -> None:
    with hostile(tiny.bundle) as service:
        service.lies[CONFIG] = (200, {**service.config, "chunk_bytes": 2**53})
        with pytest.raises(AtlasError):  # of the answer, which is none
            asked(service, tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32))
    assert max(len(body) for how, _, body in service.sent if how == "PUT") <= 2**23


@pytest.mark.parametrize("received", [(0,), (1,), (0, 2**50), (2**53,)])
def test_a_service_that_keeps_nothing(
    tiny: Tiny, tmp_path: Path, received: tuple[int, ...]
) -> None:
    """It would be sent the keys for ever."""
    with hostile(tiny.bundle) as service:

        def say(handler: object) -> None:
            told = received[len(service.sent) % len(received)]
            handler.say(200, {**service.key(told), "ready": False})  # type: ignore[attr-defined]

        service.lies |= {("POST", "/keys"): say, ("PUT", "/keys/.*"): say}
        with pytest.raises(AtlasError, match="does not keep"):
            asked(service, tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32))
        assert service.count("/keys/.*") <= 12 and not service.count("/jobs.*")


# --- its answers

ANSWERS: dict[str, tuple[tuple[str, str], Lie, str]] = {
    **{
        name: (("GET", ".*/answer"), (200, content), "is (damaged|no answer)")
        for name, content in RAW.items()
    },
    "no end": (("GET", ".*/answer"), endless(b"x"), "cannot be reached"),
    "too much": (("GET", ".*/answer"), (200, bytes(2**25)), "too large"),
    "a failure with an escape": (
        ("POST", "/jobs"),
        (200, {"id": "a", "state": "failed", "fault": {"error": "\x1b[2J"}}), "not understood",
    ),
    "another state": (("POST", "/jobs"), (200, {"state": "lost"}), "not understood"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer(tiny: Tiny, tmp_path: Path, name: str, hasty: None) -> None:
    """Nothing is sent after it, but that the job may be deleted."""
    request, lie, words = ANSWERS[name]
    with hostile(tiny.bundle, {request: lie}) as service:
        with pytest.raises(AtlasError, match=words) as caught:
            asked(service, tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32))
        after = [how for how, path, _ in service.sent if re.fullmatch("/jobs.*", path)]
    assert after[0] == "POST" and set(after[1:]) <= {"DELETE"}
    assert "\x1b" not in str(caught.value)


def test_a_query_is_no_answer(tiny: Tiny, tmp_path: Path) -> None:
    with hostile(tiny.bundle) as service:
        service.lies[("GET", ".*/answer")] = lambda handler: handler.say(
            200, next(body for how, path, body in service.sent if path == "/jobs")
        )
        with pytest.raises(AtlasError, match="the message is no answer"):
            asked(service, tmp_path / "folder", np.zeros((1, 1, 8, 8), np.float32))


# --- what is told


def test_what_leaves_is_told_when_keys_are_made_and_a_service_is_met(
    text_bundle: Path, tmp_path: Path
) -> None:
    done = run("keygen", text_bundle, "-o", tmp_path / "keys")
    wanted = (
        "the server sees in the clear: attention_mask [2, 6]: which places of a text are tokens"
    )
    assert wanted in done.err
    bundle = forged(text_bundle, tmp_path / "bundle", SPEAKS)
    told: list[str] = []
    with hostile(bundle) as service:
        for _ in range(2):
            atlasc.connect(
                service.url, token="x", folder=tmp_path / "folder", allow_simulation=True,
                note=lambda headline, _: told.append(headline),
            ).close()  # fmt: skip
        assert len(told) == 1 and told[0].startswith(wanted)
        edit = replaced(MASK, "")
        service.bundle = forged(bundle, tmp_path / "other", {INTERFACE: edit})
        service.bundle = forged(
            service.bundle, tmp_path / "third", {"manifest.json": lambda text: re.sub(
                '"program": "[0-9a-f]{64}"', f'"program": "{"0" * 64}"', text)}
        )  # fmt: skip
        with pytest.raises(AtlasError, match="answers another program") as caught:
            asked(service, tmp_path / "folder", ["q"])
    assert "in the clear: here attention_mask [2, 6], there nothing" in caught.value.why
