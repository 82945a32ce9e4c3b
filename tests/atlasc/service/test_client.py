"""``atlasc.connect`` and ``atlasc query``: a model that runs elsewhere, and a service that lies."""

from __future__ import annotations

import datetime
import ipaddress
import json
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from tiny_model import Tiny, make_tiny

import atlasc
from atlasc.bundle import signing
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.client.checks import Answers
from atlasc.files import new_private_file
from atlasc.loading.inputs import Inputs
from atlasc.remote.answers import RemoteAnswers, classes_of
from atlasc.remote.folders import data_folder, default_folder
from atlasc.remote.link import Link
from tests.atlasc.cli.command import refused, run
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running

pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.filterwarnings("ignore:the server sees in the clear"),
]
rehearse = partial(atlasc.connect, allow_simulation=True)
"""The services here are simulations; ``tests/atlasc/remote`` refuses one."""


@pytest.fixture(scope="module")
def service(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("service") / "state", tiny.bundle)
    yield found
    found.kill()


@pytest.fixture(scope="module")
def token(service: Running) -> str:
    return service.token("acme")


def test_answers_as_if_it_ran_here(
    service: Running, token: str, party: Party, tmp_path: Path
) -> None:
    told: list[str] = []
    folder = tmp_path / "folder"
    with rehearse(
        service.url, token=token, folder=folder, progress=lambda what, *_: told.append(what)
    ) as connection:
        found = connection.query(party.pixels[:5])  # three jobs of at most two inputs
        expected = atlasc.load(party.bundle).run(party.pixels[:5]).outputs["output"]
        np.testing.assert_allclose(found.outputs["output"], expected, atol=1e-6)
        assert found.rows == (0, 1, 2, 3, 4) and not found.refused and found.labels == []
    assert any("generating keys" in one for one in told)
    told.clear()
    with rehearse(
        service.url, token=token, folder=folder, progress=lambda what, *_: told.append(what)
    ) as connection:
        assert connection.query(party.pixels[:1]).outputs["output"].shape == (1, 3)
    assert not any("keys (MiB)" in one or "generating" in one for one in told)
    assert service.call("GET", "/keys", token).json[0]["ready"]
    done = service.call("GET", "/jobs", token).json
    assert {one["answer_bytes"] for one in done} == {0}  # fetched, and deleted there
    for path in (folder / "keys").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert not list((folder / "programs").rglob("server"))


def test_the_command(service: Running, tiny: Tiny, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(service.token("shell") + "\n")
    token.chmod(0o600)
    words = ("query", service.url, "--input", tiny.data, "--token-file", token)
    words += ("--folder", tmp_path / "folder", "--allow-simulation")
    done = run(*words, "--count", 3, "-o", tmp_path / "answers.npz")
    assert "images.npz[2]" in done.out and "own use" in done.err and "simulation" in done.err
    with np.load(tmp_path / "answers.npz") as file:
        assert file["output"].shape == (3, 3)
    assert stat.S_IMODE((tmp_path / "answers.npz").stat().st_mode) == 0o600
    found = json.loads(run(*words, "--index", "4", "--json").out)
    assert found["inputs"] == ["images.npz[4]"] and len(found["outputs"]["output"][0]) == 3
    token.chmod(0o644)
    assert "open to other users" in refused(*words)
    assert "several models" not in refused(*words[:4], "--folder", tmp_path / "folder")


def test_what_an_input_must_be(service: Running, token: str, party: Party, tmp_path: Path) -> None:
    with rehearse(service.url, token=token, folder=tmp_path / "folder") as connection:
        jobs = len(service.call("GET", "/jobs", token).json)
        with pytest.raises(atlasc.AtlasError, match="not fit to be encrypted"):
            connection.query(party.pixels[:1] * 1e6)
        bad = np.concatenate([party.pixels[:1], party.pixels[:1] * np.inf, party.pixels[1:2]])
        notes: list[str] = []
        found = connection.query(bad, note=lambda headline, details="": notes.append(headline))
        assert found.rows == (0, 2) and 1 in found.left_out
        assert np.isnan(found.outputs["output"][1]).all()
        assert any("left out" in note for note in notes)
        assert len(service.call("GET", "/jobs", token).json) == jobs + 1


def test_classes_have_the_models_names() -> None:
    config = SimpleNamespace(id2label={0: "calm", 1: "glad", 2: "sad"})
    bundle = cast("Bundle", SimpleNamespace(model=SimpleNamespace(config=config)))
    scores = {"logits": np.array([[0.1, 0.2, 0.9], [5.0, 0.0, 0.0]])}
    classes = classes_of(bundle, scores)
    assert classes == ("calm", "glad", "sad")
    for others in (
        {"hidden": np.zeros((2, 4))},
        {"hidden": np.zeros((2, 3, 3))},
        {**scores, "more": scores["logits"]},
    ):
        assert classes_of(bundle, others) == ()
    arrays, names = {"x": np.zeros((3, 1))}, ("a", "b", "c")
    answers = Answers(scores, {1: 0.5})  # the second of two that were encrypted is refused
    found = RemoteAnswers(Inputs(arrays, names), (0, 2), answers, {1: "too large"}, classes)
    assert found.labels == ["sad", None, None] and found.refused == {2: 0.5}
    assert np.isnan(found.outputs["logits"][1:]).all()
    assert found.numbers(unchecked=True)["logits"][2, 0] == 5.0
    several = replace(found, several=True)  # each label by itself, from a logit of 0 on
    assert several.labels == ["calm, glad, sad", None, None]
    logits = np.array([[-1.0, 0.5, -2.0], [0.0, 0.0, 0.0]])
    low = replace(several, answers=Answers({"logits": logits}, {}))
    assert low.labels == ["glad", None, "calm, glad, sad"]


def test_a_new_version_is_shown_field_by_field(
    start: Callable[..., Running], tiny: Tiny, party: Party, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    (tmp_path / "other").mkdir()
    other = make_tiny(tmp_path / "other", "sim", deep=True).bundle
    service = start(name="first")
    token = service.token("acme")
    with rehearse(service.url, token=token, folder=folder) as connection:
        old = connection.facts.program
    port = service.port
    service.kill()
    changed = Running(tmp_path / "second", other, port=port)
    try:
        token = changed.token("acme")
        with pytest.raises(atlasc.AtlasError, match="answers another program") as caught:
            rehearse(changed.url, token=token, folder=folder)
        assert f"program: here {old[:16]}" in caught.value.why
        assert (
            "client/interface.safetensors" in caught.value.why and "--update" in caught.value.remedy
        )
        with rehearse(changed.url, token=token, folder=folder, update=True) as connection:
            assert connection.facts.program != old
            assert connection.query(party.pixels[:1]).outputs["output"].shape == (1, 3)
    finally:
        changed.kill()
    both = Running(tmp_path / "third", tiny.bundle, other, port=port)
    try:
        token = both.token("acme")
        with rehearse(both.url, token=token, folder=folder) as connection:
            assert connection.facts.program != old  # what the folder is for now
    finally:
        both.kill()


def test_a_program_that_was_not_signed(
    start: Callable[..., Running], tiny: Tiny, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny.bundle, bundle)
    mine = signing.make_key(tmp_path / "mine.key", "")
    theirs = signing.make_key(tmp_path / "theirs.key", "")
    signing.sign(load_bundle(bundle), tmp_path / "mine.key", "")
    service = start(bundle=bundle)
    token = service.token("acme")
    folder = tmp_path / "folder"
    with pytest.raises(atlasc.AtlasError, match="does not have the signature"):
        rehearse(service.url, token=token, folder=folder, signed_by=theirs)
    assert not list(folder.rglob("manifest.json")) and not list(folder.rglob("secret.key"))
    rehearse(service.url, token=token, folder=folder, signed_by=mine).close()


def test_a_client_part_that_is_damaged_on_the_server(
    start: Callable[..., Running], tiny: Tiny, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny.bundle, bundle)
    service = start(bundle=bundle)
    token = service.token("acme")
    with open(bundle / "client" / "embed.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    with pytest.raises(atlasc.AtlasError, match="was changed after the bundle was compiled"):
        rehearse(service.url, token=token, folder=tmp_path / "folder")
    assert not list((tmp_path / "folder").rglob("manifest.json"))


def test_a_service_that_cannot_be_reached(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    for url, words in (
        (f"http://127.0.0.1:{port}", "cannot be reached"),
        ("http://example.org", "has no TLS"),
        ("ftp://127.0.0.1", "not the address"),
        ("http://user:word@127.0.0.1", "not the address"),
        ("127.0.0.1:8000", "not the address"),
    ):
        with pytest.raises(atlasc.AtlasError, match=words):
            rehearse(url, token="atlasc_x", folder=tmp_path)
    with pytest.raises(atlasc.AtlasError, match="there is no token"):
        rehearse(f"http://127.0.0.1:{port}", folder=tmp_path)
    with pytest.raises(atlasc.AtlasError, match="token is damaged"):
        Link(f"http://127.0.0.1:{port}", "a\nb")


def test_wrong_tokens_and_folders(
    service: Running, token: str, party: Party, tmp_path: Path
) -> None:
    with pytest.raises(atlasc.AtlasError, match="valid token"):
        rehearse(service.url, token=token[:-1] + "x", folder=tmp_path / "a")
    with pytest.raises(atlasc.AtlasError, match="does not answer the model none"):
        rehearse(service.url, token=token, folder=tmp_path / "b", model="none")
    with pytest.raises(atlasc.AtlasError, match="does not allow keys"):
        rehearse(service.url, token=service.token("acme", "infer"), folder=tmp_path / "c")
    rehearse(service.url, token=token, folder=tmp_path / "d").close()
    with pytest.raises(atlasc.AtlasError, match="belongs to the model tiny"):
        rehearse(service.url + "/", token=token, folder=tmp_path / "d", model="none")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, signed by itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    places = folder / "cert.pem", folder / "key.pem"
    pem = serialization.Encoding.PEM
    places[0].write_bytes(made.public_bytes(pem))
    kind, nothing = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    new_private_file(places[1], key.private_bytes(pem, kind, nothing))
    return places


def test_tls(tiny: Tiny, party: Party, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    words = ["serve", tiny.bundle, "--state", tmp_path / "state", "--port", "0"]
    words += ["--tls-cert", cert, "--tls-key", key]
    token = run("tokens", "--state", tmp_path / "state", "--add", "acme").out.strip()
    process = subprocess.Popen(
        [sys.executable, "-m", "atlasc", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert url.startswith("https://")
        with pytest.raises(atlasc.AtlasError, match="cannot be reached") as caught:
            rehearse(url, token=token, folder=tmp_path / "folder")
        assert "certificate" in caught.value.why.lower()
        with pytest.raises(atlasc.AtlasError, match="cannot be reached"):
            rehearse(url.replace("https", "http"), token=token, folder=tmp_path / "folder")
        with rehearse(url, token=token, folder=tmp_path / "folder", authority=cert) as connection:
            assert connection.query(party.pixels[:1]).outputs["output"].shape == (1, 3)
    finally:
        process.kill()
        process.wait()


def test_the_client_needs_no_extra() -> None:
    """Neither the libraries of a service nor those of the compiler."""
    missing = ("fastapi", "starlette", "uvicorn", "prometheus_client", "torch", "transformers")
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({missing}))\nimport atlasc\natlasc.connect\n"
        "import atlasc.cli.commands.query, atlasc.cli.commands.serve\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model", ["..", ".", "../../x", "a/../b", ""])
def test_a_service_cannot_name_another_folder(model: str) -> None:
    place = default_folder("http://localhost:8000", model)
    assert place.parent == data_folder("services", "http://localhost:8000")
    assert place.name.strip(".")
