"""A service that does not start, each time with one message and exit code 2; and how one ends."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import pytest
from tiny_model import Tiny

import atlasc
from atlasc.bundle.manifest import read_manifest
from atlasc.bundle.sealed import require_no_secret
from atlasc.cli import main
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB
from atlasc.service.programs import Programs, Served, _require_one_kind
from atlasc.service.records.usage import require_disk
from atlasc.service.runner import SAME_STARTS
from atlasc.service.store import Store
from atlasc.service.workers.cluster import shared_out
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import SECONDS, Running, until

FORKED = get_context("forkserver")
"""Processes that have read the command's modules already, which takes it longer than to refuse."""
FORKED.set_forkserver_preload(["atlasc.cli.commands.serve", "atlasc.service.serve"])


def command(words: list[str], out: Path) -> None:
    """Run the command line; ``out`` gets what it prints."""
    for descriptor in (1, 2):
        os.dup2(os.open(out.with_suffix(f".{descriptor}"), os.O_CREAT | os.O_WRONLY), descriptor)
    sys.argv = ["atlasc", *words]
    main()


def refusal(bundle: Path, tmp_path: Path, *options: object) -> str:
    """The message of a service that must not start; one that starts is ended."""
    words = ["serve", *map(str, (bundle, "--state", tmp_path / "state", *options))]
    out = Path(mkdtemp(dir=tmp_path)) / "out"
    process = FORKED.Process(target=command, args=(words, out), daemon=True)
    process.start()
    process.join(SECONDS)
    process.kill()
    shown, told = (out.with_suffix(f".{descriptor}").read_text() for descriptor in (1, 2))
    assert process.exitcode == 2 and not shown, told
    assert "Traceback" not in told and told.count("error:") == 1
    return told


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


def renamed(bundle: Path, folder: Path, **changes: object) -> Path:
    """A copy of a bundle whose manifest has other members."""
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, value in changes.items():
        manifest[name] = {**manifest[name], **value} if isinstance(value, dict) else value
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_programs_have_names(tiny: Tiny, tmp_path: Path) -> None:
    """A bundle without one is called after its model; programs of one name are versions of it."""
    named = renamed(tiny.bundle, tmp_path / "named", name="digits.v1")
    (one,), (old,) = Programs([named]), Programs([tiny.bundle])
    assert (one.model, old.model) == ("digits.v1", "tiny")
    for wrong in ("", "a/b", "..", "-a", "a b", "a" * 65, "a\n", 'a"b', "ä"):
        shutil.rmtree(tmp_path / "wrong", ignore_errors=True)
        with pytest.raises(AtlasError, match="manifest.json is damaged"):
            Programs([renamed(tiny.bundle, tmp_path / "wrong", name=wrong)])
    other = renamed(tiny.bundle, tmp_path / "other", program="0" * 64, model={"kind": "bert"})
    served = replace(one, bundle=replace(one.bundle, manifest=read_manifest(other)[0]))
    with pytest.raises(AtlasError, match="two different models have the name") as caught:
        _require_one_kind(served, [one])
    assert "another --name" in caught.value.remedy
    _require_one_kind(one, [one])


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


def test_what_else_does_not_fit(tiny: Tiny, tiny_cpu: Tiny, tmp_path: Path) -> None:
    assert "given twice" in refusal(tiny.bundle, tmp_path, tiny.bundle)
    message = refusal(tiny_cpu.bundle, tmp_path, "--memory", "1M", "--port", 0)
    assert "do not fit into the memory" in message
    assert "not found" in refusal(tmp_path / "nothing", tmp_path)


def test_a_simulation_has_no_keys(tiny: Tiny, tiny_cpu: Tiny) -> None:
    (simulated,), (real,) = Programs([tiny.bundle]), Programs([tiny_cpu.bundle])
    assert simulated.loaded_bytes == simulated.stored_bytes == 0
    assert real.loaded_bytes > real.key_bytes - MIB > real.stored_bytes > 10 * MIB


def test_a_disk_without_room_for_one_tenant(
    programs: Programs, served: Served, tiny_cpu: Tiny, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """What the service keeps there counts as room: a full disk is no reason not to start."""
    store = Store(tmp_path / "state")
    free = served.query_bytes + served.answer_bytes - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises(AtlasError, match="too small for one tenant of tiny"):
        require_disk(store, programs, 1 << 40)
    with store.writing() as db:
        db.execute("insert into keys values ('acme', 'k', 'c', 100, 1, 0, 0, null)")
    require_disk(store, programs, 1 << 40)
    monkeypatch.undo()
    with pytest.raises(AtlasError, match="--quota is too small for the keys of one tenant"):
        require_disk(store, Programs([tiny_cpu.bundle]), MIB)
    store.close()


def test_a_state_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(tmp_path / "state").close()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    with pytest.raises(AtlasError, match="cannot hold the state of a service") as caught:
        Store(tmp_path / "state")
    assert "cannot be written" in caught.value.why


class Unfit(Running):
    """A service whose workers end at once."""

    program = (
        "-c",
        "import types\n"
        "from atlasc.service import runner, serve\n"
        "from atlasc.service.workers import local\n"
        "runner.SLOWEST_RESTART, serve.FAILED_SECONDS = 0.0, 2\n"
        "local.sys = types.SimpleNamespace(executable='false')\n"
        "from atlasc.cli import main\n"
        "main()\n",
    )


def test_workers_that_never_start(tiny: Tiny, tmp_path: Path) -> None:
    """The service says why to health checks and in the log, and ends with a code."""
    service = Unfit(tmp_path / "state", tiny.bundle)
    until(lambda: "failed" in service.call("GET", "/v2/health/ready").json)
    found = service.call("GET", "/v2/health/ready")
    assert found.status == 503 and found.json["failed"] == "its process ended with 1"
    ready = service.call("GET", "/v2/models/tiny/ready", service.token("t"))
    assert ready.status == 503 and not ready.json["ready"]
    assert service.call("GET", "/v2/health/live").status == 200
    assert service.process.wait(SECONDS) == 2
    events = [line["event"] for line in service.log]
    assert events.count("worker died") == SAME_STARTS
    assert (
        events.count("worker is not started again") == events.count("the service has failed") == 1
    )
    assert "error: no worker of the service can be started" in service.log_path.read_text()


def test_a_cluster_without_room() -> None:
    assert shared_out([4, 4], None) == (2, 1, 4)
    assert shared_out([4, 2], 3) == (3, 2, 1)
    assert shared_out([1, 1], 2) == (2, 1, 1)
    for machines, asked in (([1], 2), ([1, 1], 3), ([], None), ([], 1)):
        with pytest.raises(AtlasError, match=f"room for {sum(machines)} worker"):
            shared_out(machines, asked)


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
