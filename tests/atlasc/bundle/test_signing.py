"""A signature stands for a whole bundle."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.cli import app

pytest.importorskip("minisign")


def atlasc(*arguments: str | Path, code: int = 0, typed: str = "") -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), input=typed)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def copy(tiny: Tiny, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))


@pytest.fixture
def key(copy: Path, tmp_path: Path) -> Path:
    """A key that signed the bundle."""
    atlasc("sign", copy, "--key", tmp_path / "mine.key", "--make-key", "--no-password")
    return tmp_path / "mine.key"


def test_what_was_signed_is_accepted(copy: Path, key: Path) -> None:
    shown = atlasc("verify", copy, "--signed-by", key.with_suffix(".pub"))
    assert "and signed by" in shown and "identity " in shown
    shutil.rmtree(copy / "server")
    atlasc("verify", copy, "--signed-by", key.with_suffix(".pub"))


def test_the_secret_key_is_for_its_owner_alone(copy: Path, key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    message = atlasc("sign", copy, "--key", key, "--no-password", code=2)
    assert "open to other users" in message


def test_a_changed_bundle_is_refused(copy: Path, key: Path) -> None:
    manifest = copy / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    message = atlasc("verify", copy, "--signed-by", key.with_suffix(".pub"), code=2)
    assert "does not have the signature of" in message


def test_another_key_is_refused(copy: Path, key: Path, tmp_path: Path) -> None:
    before = (copy / "manifest.json.minisig").read_bytes()
    atlasc("sign", copy, "--key", tmp_path / "other.key", "--make-key", "--no-password")
    (copy / "manifest.json.minisig").write_bytes(before)
    message = atlasc("verify", copy, "--signed-by", tmp_path / "other.pub", code=2)
    assert "does not have the signature of" in message


def test_a_bundle_without_a_signature_is_said_to_be_one(copy: Path, key: Path) -> None:
    (copy / "manifest.json.minisig").unlink()
    message = atlasc("verify", copy, "--signed-by", key.with_suffix(".pub"), code=2)
    assert "is not signed" in message


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"untrusted comment: x\nAAAA\n", b"a" * 99999]
)
def test_damaged_keys_and_signatures_are_refused(copy: Path, key: Path, content: bytes) -> None:
    public, signature = key.with_suffix(".pub"), copy / "manifest.json.minisig"
    for place in (public, signature):
        whole = place.read_bytes()
        place.write_bytes(content)
        atlasc("verify", copy, "--signed-by", public, code=2)
        place.write_bytes(whole)
    key.write_bytes(content)
    atlasc("sign", copy, "--key", key, "--no-password", code=2)


def test_a_key_may_have_a_password(copy: Path, tmp_path: Path) -> None:
    key = tmp_path / "mine.key"
    atlasc("sign", copy, "--key", key, "--make-key", typed="secret\nsecret\n")
    atlasc("sign", copy, "--key", key, typed="secret\n")
    message = atlasc("sign", copy, "--key", key, code=2, typed="wrong\n")
    assert "cannot sign" in message


def test_keys_are_never_overwritten(copy: Path, key: Path) -> None:
    before = key.read_bytes()
    message = atlasc("sign", copy, "--key", key, "--make-key", "--no-password", code=2)
    assert "exists already" in message and key.read_bytes() == before
