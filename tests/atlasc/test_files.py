"""Outputs appear whole or not at all, and drafts give nobody an opening."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atlasc import files
from atlasc.files import new_folder, require_new, write_text, write_with
from atlasc.ir.errors import AtlasError


def drafts(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.part"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_appears_at_the_end(tmp_path: Path) -> None:
    with new_folder(tmp_path / "new") as draft:
        (draft / "file").write_text("content")
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "new" / "file").read_text() == "content"
    assert drafts(tmp_path) == []


def test_a_private_folder_is_closed_from_the_first_moment(tmp_path: Path) -> None:
    with new_folder(tmp_path / "keys", private=True) as draft:
        assert mode(draft) == 0o700
    assert mode(tmp_path / "keys") == 0o700
    with new_folder(tmp_path / "bundle") as draft:
        assert mode(draft) & 0o700 == 0o700
    assert mode(tmp_path / "bundle") == mode(_made(tmp_path / "beside"))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_nothing_stays_of_a_failure(tmp_path: Path) -> None:
    def fails() -> None:
        with new_folder(tmp_path / "new") as draft:
            (draft / "file").write_text("content")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced_or_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def fails(draft: Path) -> None:
        draft.write_text("half")
        raise OSError(28, "No space left on device", str(draft))

    with pytest.raises(AtlasError, match=r"cannot be written\n.*No space left.*\n.*make room"):
        write_with(path, fails)
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_an_error_of_another_file_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "new"):
        (tmp_path / "missing").read_text()


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "file").symlink_to(victim)
    write_text(tmp_path / "file", "new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "file").is_symlink()


def test_drafts_beside_an_output_that_is_there_go_as_well(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for name in (".new.0123456789abcdef.part", ".other.json.0123456789abcdef.part"):
        (tmp_path / name).mkdir()
    (tmp_path / ".mine.part").mkdir()
    with pytest.raises(AtlasError, match="exists already"):
        require_new(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.part", "new"]


def test_links_that_were_prepared_for_a_draft_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    (tmp_path / ".new.0123456789abcdef.part").symlink_to(victim)
    (tmp_path / f".new.{os.getpid()}.part").symlink_to(victim)
    with new_folder(tmp_path / "new") as draft:
        (draft / "file").touch()
    assert [path.name for path in victim.iterdir()] == ["precious"]


def _hold(place: Path) -> None:
    with new_folder(place) as draft:
        (draft / "file").write_text("half")
        time.sleep(60)


def test_the_draft_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    writers = [
        multiprocessing.get_context("fork").Process(target=_hold, args=(tmp_path / "new",))
        for _ in range(2)
    ]
    for number, writer in enumerate(writers, 1):
        writer.start()
        while len(list(tmp_path.glob(".new.*.part/file"))) < number:
            time.sleep(0.01)
    os.kill(writers[0].pid or 0, signal.SIGKILL)
    writers[0].join()
    with new_folder(tmp_path / "new"):
        assert len(drafts(tmp_path)) == 2, "that of the living one, and ours"
    assert len(drafts(tmp_path)) == 1
    writers[1].kill()
    writers[1].join()


def test_a_draft_that_is_taken_for_a_stale_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, taken = files.locked, list[Path]()

    @contextmanager
    def late(folder: Path, how: int = 0) -> Iterator[None]:
        with locked(folder, how):
            if not taken:
                folder.rmdir()
                taken.append(folder)
            yield

    monkeypatch.setattr(files, "locked", late)
    write_text(tmp_path / "file", "content")
    assert taken and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_written_inside_another_that_is_written(tmp_path: Path) -> None:
    with new_folder(tmp_path / "outer") as outer, new_folder(outer / "inner") as inner:
        (inner / "file").touch()
    assert (tmp_path / "outer" / "inner" / "file").exists() and drafts(tmp_path) == []


def test_a_folder_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def is_late() -> None:
        with new_folder(tmp_path / "new") as draft:
            (draft / "file").touch()
            (tmp_path / "new").mkdir()

    with pytest.raises(AtlasError, match="exists already"):
        is_late()
    assert list((tmp_path / "new").iterdir()) == [] and drafts(tmp_path) == []
