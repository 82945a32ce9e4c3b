"""``keygen``, ``encrypt``, ``execute``, ``decrypt``: on the simulator, and what is refused.

tests/end_to_end has the four commands at work.
"""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from tiny_model import Tiny, simulated
from typer.testing import CliRunner

from atlasc.bundle.folder import load_bundle
from atlasc.cli import app
from atlasc.targets import machine


def accepted(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    return result.stderr


def test_the_roles_on_the_simulator(tiny: Tiny, tmp_path: Path) -> None:
    """A rehearsal: the folders of a real exchange, and the answer of the polynomials."""
    keys, query, answer = (tmp_path / name for name in ("keys", "query", "answer"))
    made = accepted("keygen", tiny.bundle, "--keys", keys)
    assert "the target sim is a simulation: nothing is encrypted" in made.stderr
    assert "secret key" not in made.stdout
    for role in ("client", "server"):
        assert "SIMULATION" in (keys / role / "keys.json").read_text()
        assert stat.S_IMODE((keys / role).stat().st_mode) == 0o700
    assert b"SIMULATION" in (keys / "client" / "secret.key").read_bytes()
    given = ("--input", tiny.data, "--index", "3,8", "-o", query)
    encrypted = accepted("encrypt", tiny.bundle, "--keys", keys, *given)
    assert "NOT encrypted" in encrypted.stdout and "nothing is encrypted" in encrypted.stderr
    assert b"SIMULATION" in query.read_bytes()
    accepted("execute", tiny.bundle, "--keys", keys, "--query", query, "-o", answer)
    decrypted = accepted("decrypt", tiny.bundle, "--keys", keys, "--answer", answer, "--json")
    found = json.loads(decrypted.stdout)["outputs"]
    expected = simulated(load_bundle(tiny.bundle), tiny.data, [3, 8])
    for name, values in expected.items():
        assert np.abs(np.array(found[name]) - values).max() <= 1e-9
    other = tmp_path / "other"
    accepted("keygen", tiny.bundle, "--keys", other)
    more = ("--query", query, "-o", tmp_path / "x")
    message = refused("execute", tiny.bundle, "--keys", other, *more)
    assert "this ciphertext was made with other keys" in message
    message = refused("execute", tiny.bundle, "--keys", keys / "client", *more)
    assert "these are not the keys of a server" in message


def test_a_damaged_query_is_found_before_keys_are_loaded(tiny: Tiny, tmp_path: Path) -> None:
    accepted("keygen", tiny.bundle, "--keys", tmp_path / "keys")
    given = ("--input", tiny.data, "--count", "1", "-o", tmp_path / "query")
    accepted("encrypt", tiny.bundle, "--keys", tmp_path / "keys", *given)
    shutil.rmtree(tmp_path / "keys")
    more = ("--keys", tmp_path / "keys", "--query", tmp_path / "query", "-o", tmp_path / "answer")
    assert "not found" in refused("execute", tiny.bundle, *more)
    content = (tmp_path / "query").read_bytes()
    (tmp_path / "query").write_bytes(content[:-10])
    message = refused("execute", tiny.bundle, *more)
    assert "is damaged" in message and "it is truncated" in message


def test_keys_of_the_simulator_are_not_taken_for_real_ones(tiny: Tiny, tmp_path: Path) -> None:
    accepted("keygen", tiny.bundle, "--keys", tmp_path / "keys")
    message = refused(
        "encrypt", tiny.bundle, "--target", "cpu", "--keys", tmp_path / "keys",
        "--input", tiny.data, "--count", "1", "-o", tmp_path / "query",
    )  # fmt: skip
    assert "these are not the keys of the target cpu" in message


def test_each_role_says_which_part_it_lacks(tiny: Tiny, tmp_path: Path) -> None:
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "client only"))
    shutil.rmtree(client / "server")
    message = refused("execute", client, "--keys", "k", "--query", "q", "-o", tmp_path / "a")
    assert "lacks server/" in message
    server = Path(shutil.copytree(tiny.bundle, tmp_path / "server only"))
    shutil.rmtree(server / "client")
    assert "lacks client/" in refused("keygen", server, "--keys", tmp_path / "keys")


def test_split_makes_the_parts_of_client_and_server(tiny: Tiny, tmp_path: Path) -> None:
    """Each role works with its part alone, and finds no file of the other in it."""
    accepted("split", tiny.bundle, "-o", tmp_path / "parts")
    client, server = (tmp_path / "parts" / role for role in ("client", "server"))
    assert sorted(path.name for path in client.iterdir()) == ["client", "manifest.json"]
    assert sorted(path.name for path in server.iterdir()) == ["manifest.json", "server"]
    keys, query, answer = (tmp_path / name for name in ("keys", "query", "answer"))
    accepted("keygen", client, "--keys", keys)
    given = ("--input", tiny.data, "--index", "3", "-o", query)
    accepted("encrypt", client, "--keys", keys / "client", *given)
    accepted("execute", server, "--keys", keys / "server", "--query", query, "-o", answer)
    words = ("--keys", keys / "client", "--answer", answer, "--json")
    found = json.loads(accepted("decrypt", client, *words).stdout)["outputs"]
    expected = simulated(load_bundle(tiny.bundle), tiny.data, [3])
    for name, values in expected.items():
        assert np.abs(np.array(found[name]) - values).max() <= 1e-9
    assert json.loads(accepted("inspect", server, "--json").stdout)["levels_total"] > 0
    for part in (client, server):
        accepted("verify", part)
    assert "lacks server/" in refused("inspect", client)
    for role, lacking in (("client", "server"), ("server", "client")):
        for command in ("run", "compare", "check-input"):
            words = (tmp_path / "parts" / role, "--input", tiny.data, "--index", "0")
            result = CliRunner().invoke(app, list(map(str, (command, *words))))
            assert result.exit_code == 2, result.output
            assert f"lacks {lacking}/" in result.stderr or "ranges cannot" in result.stderr
            assert f"{lacking}'s part of" in result.stderr
    message = refused("split", client, "-o", tmp_path / "again")
    assert "lacks server/" in message and not (tmp_path / "again").exists()


def test_a_folder_without_a_manifest_is_explained(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    message = refused("keygen", tmp_path / "client", "--keys", tmp_path / "keys")
    assert "its client folder with manifest.json beside it" in message


def test_too_little_memory_leaves_no_folder(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 2**26)
    message = refused("keygen", tiny.bundle, "--target", "cpu", "--keys", tmp_path / "keys")
    assert "not enough memory for generating the keys" in message
    assert "GiB are needed, but 0.1 GiB are available" in message
    assert list(tmp_path.iterdir()) == []


def test_wrong_keys_and_queries_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    cpu = ("--target", "cpu", "--keys", tmp_path / "keys")
    more = ("--input", tiny.data, "--count", "1", "-o", tmp_path / "query")
    assert "keys not found" in refused("encrypt", tiny.bundle, *cpu, *more)
    (tmp_path / "keys").mkdir()
    message = refused("encrypt", tiny.bundle, *cpu, *more)
    assert "no complete keys here" in message
    message = refused(
        "execute", tiny.bundle, *cpu, "--query", tmp_path / "no query", "-o", tmp_path / "a"
    )
    assert "not found" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys"]


def test_a_query_holds_one_batch(tiny: Tiny, tmp_path: Path) -> None:
    message = refused(
        "encrypt", tiny.bundle, "--target", "cpu", "--keys", tmp_path,
        "--input", tiny.data, "-o", tmp_path / "query",
    )  # fmt: skip
    assert "24 inputs were given, but the program answers 1 to 2 at a time" in message
    assert "--count" in message


def test_strict_needs_the_polynomials(tiny: Tiny, tmp_path: Path) -> None:
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))
    shutil.rmtree(client / "server")
    message = refused(
        "encrypt", client, "--target", "cpu", "--keys", tmp_path, "--strict",
        "--input", tiny.data, "--count", "1", "-o", tmp_path / "query",
    )  # fmt: skip
    assert "the ranges cannot be checked here" in message
