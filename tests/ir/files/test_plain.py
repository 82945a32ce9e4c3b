"""Only plain files of a bounded size are read, and secrets only where nobody else may."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import read_bytes, read_text, require_private


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    assert read_bytes(tmp_path / "file", 4) == b"1234"
    with pytest.raises(AtlasError, match=r"too large.*\n.*4 bytes; the limit .* is 3"):
        read_bytes(tmp_path / "file", 3)


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/full", "."])
def test_what_is_no_plain_file_is_refused(place: str) -> None:
    with pytest.raises(AtlasError, match="not a plain file"):
        read_bytes(Path(place), 10)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AtlasError, match="not a plain file"):
        read_bytes(tmp_path / "pipe", 10)


def test_a_file_that_hides_its_size_is_bounded() -> None:
    with pytest.raises(AtlasError, match="too large"):
        read_bytes(Path("/proc/self/maps"), 10)


def test_links_are_followed_only_where_the_user_named_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_text(tmp_path / "link", 100) == "content"
    with pytest.raises(AtlasError, match="the path is a link"):
        read_text(tmp_path / "link", 100, links=False)


def test_text_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfa")
    assert read_text(tmp_path / "file", 10) == "a"
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(AtlasError, match="not UTF-8"):
        read_text(tmp_path / "file", 10)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_secret_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "key").touch(0o600)
    require_private(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(AtlasError, match=r"open to other users(.|\n)*chmod go="):
        require_private(tmp_path / "key")


def test_a_link_to_a_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "key")
    with pytest.raises(AtlasError, match="is a link"):
        require_private(tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").touch(0o600)
    os.chown(tmp_path / "key", 12345, 12345)
    with pytest.raises(AtlasError, match="another user"):
        require_private(tmp_path / "key")
