"""A service that does not start, each time with one message and exit code 2; and how one ends."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_model import Tiny

import atlasc
from atlasc.bundle.sealed import require_no_secret
from atlasc.ir.errors import AtlasError
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, until


def refusal(bundle: Path, tmp_path: Path, *options: object) -> str:
    """The message of a service that must not start; one that starts is ended."""
    given = [bundle, "--state", tmp_path / "state", *options]
    command = [sys.executable, "-m", "atlasc", "serve", *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and not done.stdout, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("error:") == 1
    return done.stderr


def test_a_secret_key_in_a_folder(tiny: Tiny, party: Party, tmp_path: Path) -> None:
    secret = party.keys / "client" / "secret.key"
    place = tmp_path / "state" / "keys" / "acme"
    place.mkdir(parents=True)
    shutil.copyfile(secret, place / "evaluation.key")  # whatever its name
    message = refusal(tiny.bundle, tmp_path, "--port", 0)
    assert "a secret key" in message and "evaluation.key" in message
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny.bundle, bundle)
    (bundle / "notes").mkdir()
    (bundle / "notes" / "ledger.jsonl").write_text("")
    assert "a secret key, or the ledger" in refusal(bundle, tmp_path, "--port", 0)
    require_no_secret(party.keys / "server")
    with pytest.raises(AtlasError, match="a secret key"):
        require_no_secret(party.keys)


def test_a_port_in_use(tiny: Tiny, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refusal(tiny.bundle, tmp_path, "--port", port)
    assert f"port {port} of 127.0.0.1 cannot be used" in message and "in use" in message
    assert "no port 65536" in refusal(tiny.bundle, tmp_path, "--port", 65536)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("server/program.safetensors", None),
        ("client/embed.air", None),
        ("manifest.json", b'"files"'),
    ],
)
def test_a_changed_bundle(tiny: Tiny, tmp_path: Path, name: str, part: bytes | None) -> None:
    """A byte in the middle; of the manifest a name that is read: others are for people alone, and
    only a signature covers them.
    """
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny.bundle, bundle)
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2 if part is None else content.index(part) + 1] ^= 1
    (bundle / name).write_bytes(content)
    message = refusal(bundle, tmp_path, "--port", 0)
    assert name.rpartition("/")[2] in message
    assert not (tmp_path / "state").exists()


def test_the_servers_part_alone(
    tiny: Tiny, party: Party, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """Refused at the start, or told to whoever asks for the client's part."""
    split = tmp_path / "server"
    atlasc.load(tiny.bundle).save(split, part="server")
    message = refusal(split, tmp_path, "--port", 0)
    assert "has the server's part alone" in message and "--server-part-alone" in message
    service = start("--server-part-alone", bundle=split)
    token = service.token("acme")
    with pytest.raises(AtlasError, match="has only the server's part of tiny"):
        atlasc.connect(service.url, token=token, folder=tmp_path / "folder", allow_simulation=True)


def test_other_machines_need_tls(tiny: Tiny, tmp_path: Path) -> None:
    message = refusal(tiny.bundle, tmp_path, "--host", "0.0.0.0")
    assert "there is no TLS" in message and "--plain-http" in message
    (tmp_path / "cert.pem").write_text("no certificate")
    (tmp_path / "key.pem").write_text("no key")
    files = ("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem")
    assert "TLS needs a certificate and its key" in refusal(tiny.bundle, tmp_path, *files[:2])
    (tmp_path / "key.pem").chmod(0o644)
    assert "open to other users" in refusal(tiny.bundle, tmp_path, *files)
    (tmp_path / "key.pem").chmod(0o600)
    assert "the certificate cannot be used" in refusal(tiny.bundle, tmp_path, *files)


def test_what_else_does_not_fit(tiny: Tiny, tmp_path: Path) -> None:
    assert "given twice" in refusal(tiny.bundle, tmp_path, tiny.bundle)
    message = refusal(tiny.bundle, tmp_path, "--memory", "1M", "--port", 0)
    assert "do not fit into the memory" in message
    assert "not found" in refusal(tmp_path / "nothing", tmp_path)


def test_it_ends_well_and_alone(start: Callable[..., Running], tiny: Tiny, tmp_path: Path) -> None:
    service = start()
    probes = [service.call("GET", "/v2/health/ready").status for _ in range(3)]
    assert "another service uses" in refusal(tiny.bundle, tmp_path, "--port", 0)
    until(lambda: service.call("GET", "/v2/health/ready").status == 200)
    worker = next(line["pid"] for line in service.log if line["event"] == "worker started")
    assert service.stop() == 0
    found = subprocess.run(["ps", "-p", str(worker)], capture_output=True, check=False)
    assert found.returncode != 0
    told = [line for line in service.log if "ready" in line["event"]]
    assert len(told) <= 2 and {line["level"] for line in told} == {"info"}, "one for many probes"
    assert (503 in probes) == (told[0]["event"] == "the service is not ready")
    assert service.log[-1]["event"] == "service ends"
