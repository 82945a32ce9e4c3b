"""``keygen``, ``encrypt``, ``execute``, ``decrypt``: what is refused, without real keys.

tests/end_to_end has the four commands at work.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.cli import app
from atlasc.targets import memory


def refused(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    return result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("keygen", "BUNDLE", "--keys", "OUT"),
        ("encrypt", "BUNDLE", "--keys", "KEYS", "--input", "DATA", "-o", "OUT"),
        ("execute", "BUNDLE", "--keys", "KEYS", "--query", "QUERY", "-o", "OUT"),
        ("decrypt", "BUNDLE", "--keys", "KEYS", "--answer", "ANSWER"),
    ],
)
def test_the_simulator_has_no_keys(tiny: Tiny, tmp_path: Path, command: tuple[str, ...]) -> None:
    names = {"BUNDLE": tiny.bundle, "DATA": tiny.data, "OUT": tmp_path / "out"}
    message = refused(*(names.get(word, word) for word in command))
    assert "the target sim has no keys" in message
    assert "use atlasc run" in message
    assert list(tmp_path.iterdir()) == []


def test_each_role_says_which_part_it_lacks(tiny: Tiny, tmp_path: Path) -> None:
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "client only"))
    shutil.rmtree(client / "server")
    message = refused("execute", client, "--keys", "k", "--query", "q", "-o", tmp_path / "a")
    assert "lacks server/" in message
    server = Path(shutil.copytree(tiny.bundle, tmp_path / "server only"))
    shutil.rmtree(server / "client")
    assert "lacks client/" in refused("keygen", server, "--keys", tmp_path / "keys")


def test_a_folder_without_a_manifest_is_explained(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    message = refused("keygen", tmp_path / "client", "--keys", tmp_path / "keys")
    assert "its client folder with manifest.json beside it" in message


@pytest.mark.encrypted
def test_too_little_memory_leaves_no_folder(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**26)
    message = refused("keygen", tiny.bundle, "--target", "desilo", "--keys", tmp_path / "keys")
    assert "not enough memory for generating the keys" in message
    assert "GiB are needed, 0.1 GiB are available" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.encrypted
def test_wrong_keys_and_queries_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    desilo = ("--target", "desilo", "--keys", tmp_path / "keys")
    more = ("--input", tiny.data, "--count", "1", "-o", tmp_path / "query")
    assert "keys not found" in refused("encrypt", tiny.bundle, *desilo, *more)
    (tmp_path / "keys").mkdir()
    message = refused("encrypt", tiny.bundle, *desilo, *more)
    assert "no complete keys here" in message
    message = refused(
        "execute", tiny.bundle, *desilo, "--query", tmp_path / "no query", "-o", tmp_path / "a"
    )
    assert "is not a query" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys"]


@pytest.mark.encrypted
def test_a_query_holds_one_batch(tiny: Tiny, tmp_path: Path) -> None:
    message = refused(
        "encrypt", tiny.bundle, "--target", "desilo", "--keys", tmp_path,
        "--input", tiny.data, "-o", tmp_path / "query",
    )  # fmt: skip
    assert "24 inputs were given, the program answers 1 to 2 at a time" in message
    assert "--count" in message


@pytest.mark.encrypted
def test_strict_needs_the_polynomials(tiny: Tiny, tmp_path: Path) -> None:
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))
    shutil.rmtree(client / "server")
    message = refused(
        "encrypt", client, "--target", "desilo", "--keys", tmp_path, "--strict",
        "--input", tiny.data, "--count", "1", "-o", tmp_path / "query",
    )  # fmt: skip
    assert "the ranges cannot be checked here" in message
