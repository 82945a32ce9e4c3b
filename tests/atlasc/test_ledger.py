"""One answer to each query of a key, and none to any other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ledger import Ledger

PROGRAM, OTHER = "a" * 64, "b" * 64
ANSWER, SECOND = "c" * 64, "d" * 64
QUERY = "1" * 32


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path)
    made.made(QUERY, PROGRAM, 3)
    return made


def test_an_answer_may_be_decrypted_again(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.check(QUERY, PROGRAM, 3, ANSWER)
        ledger.took(QUERY, PROGRAM, 3, ANSWER, shared=False)


def test_a_second_answer_is_refused(ledger: Ledger) -> None:
    ledger.took(QUERY, PROGRAM, 3, ANSWER, shared=False)
    with pytest.raises(AtlasError, match="was answered before, and differently"):
        ledger.check(QUERY, PROGRAM, 3, SECOND)
    with pytest.raises(AtlasError, match="was answered before, and differently"):
        ledger.took(QUERY, PROGRAM, 3, SECOND, shared=False)


@pytest.mark.parametrize(
    ("query", "program", "count"),
    [("2" * 32, PROGRAM, 3), (QUERY, OTHER, 3), (QUERY, PROGRAM, 2)],
)
def test_an_answer_to_anything_else_is_refused(
    ledger: Ledger, query: str, program: str, count: int
) -> None:
    with pytest.raises(AtlasError, match="not the answer to a query of these keys"):
        ledger.check(query, program, count, ANSWER)


def test_what_was_shared_is_counted(ledger: Ledger) -> None:
    assert ledger.shared() == 0
    for shared in (True, False, True):
        ledger.took(QUERY, PROGRAM, 3, ANSWER, shared=shared)
    assert ledger.shared() == 2


def test_the_file_is_for_its_owner_alone(ledger: Ledger) -> None:
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    ledger.path.chmod(0o644)
    with pytest.raises(AtlasError, match="open to other users"):
        ledger.shared()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(AtlasError, match="cannot be written"):
        Ledger(tmp_path).made(QUERY, PROGRAM, 1)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_line_that_was_cut_off_is_removed(ledger: Ledger) -> None:
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + whole[:30])
    ledger.check(QUERY, PROGRAM, 3, ANSWER)
    assert ledger.path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"{}", b"[" * 5000, b'{"event": "query"}', b"\xff", b""])
def test_a_damaged_line_is_refused(ledger: Ledger, line: bytes) -> None:
    ledger.path.write_bytes(ledger.path.read_bytes() + line + b"\n")
    with pytest.raises(AtlasError, match="line 2 of the ledger .* is damaged"):
        ledger.shared()


def test_entries_of_several_threads_are_all_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    threads = [
        threading.Thread(target=ledger.made, args=(f"{n:032x}", PROGRAM, 1)) for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(20):
        ledger.check(f"{n:032x}", PROGRAM, 1, ANSWER)
