"""One answer to each query of a key, and none to any other."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from atlasc.bundle.ledger import Entry, Ledger
from atlasc.ir.errors import AtlasError

PROGRAM, OTHER = "a" * 64, "b" * 64
QUERY = "1" * 32
ASKED = Entry(QUERY, PROGRAM, 3)
ANSWER = Entry(QUERY, PROGRAM, 3, "c" * 64)
SPENT = b'{"event": "share", "query": "%s", "program": "%s", "count": 3, "spent": -1}' % (
    QUERY.encode(),
    PROGRAM.encode(),
)
SECOND = replace(ANSWER, answer="d" * 64)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path)
    made.add(ASKED, "")
    return made


def test_an_answer_may_be_decrypted_again(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.check(ANSWER)
        ledger.answer(ANSWER)
    assert len(ledger.path.read_text().splitlines()) == 2


def test_a_second_answer_is_refused(ledger: Ledger) -> None:
    ledger.answer(ANSWER)
    with pytest.raises(AtlasError, match="was answered before, and differently"):
        ledger.check(SECOND)
    with pytest.raises(AtlasError, match="was answered before, and differently"):
        ledger.answer(SECOND)


@pytest.mark.parametrize(
    ("query", "program", "count"),
    [("2" * 32, PROGRAM, 3), (QUERY, OTHER, 3), (QUERY, PROGRAM, 2)],
)
def test_an_answer_to_anything_else_is_refused(
    ledger: Ledger, query: str, program: str, count: int
) -> None:
    other = replace(ANSWER, query=query, program=program, count=count)
    with pytest.raises(AtlasError, match="not the answer to a query of these keys"):
        ledger.check(other)


def test_a_key_shares_as_many_answers_as_its_noise_was_sized_for(ledger: Ledger) -> None:
    assert [ledger.share(ANSWER, 30, 3) for _ in range(3)] == [1, 2, 3]
    # Neither one more, nor one that promises to be one of a thousand, nor more bits.
    for bits, shares in ((30, 3), (30, 1000), (40, 1)):
        with pytest.raises(AtlasError, match="shared as many answers as they may") as caught:
            ledger.share(ANSWER, bits, shares)
        assert "new keys" in caught.value.remedy
    assert ledger.path.read_text().count('"share"') == 3


def test_nothing_is_shared_of_a_second_answer(ledger: Ledger) -> None:
    ledger.answer(ANSWER)
    with pytest.raises(AtlasError, match="was answered before, and differently"):
        ledger.share(SECOND, 30, 1)


@pytest.mark.parametrize(
    ("doubt", "why"),
    [
        ("input 0: it reaches 1.3 times what calibration saw", "it reaches 1.3 times"),
        (None, "the ledger does not say whether its inputs"),
    ],
)
def test_nothing_is_shared_that_the_client_doubted(
    tmp_path: Path, doubt: str | None, why: str
) -> None:
    """Also of a ledger from before doubts were noted."""
    ledger = Ledger(tmp_path)
    ledger.add(ASKED, doubt)
    for call in (ledger.share, ledger.require_shareable):
        with pytest.raises(AtlasError, match="the answer to the query 11111111 is not shared") as e:
            call(ANSWER, 30, 1)
        assert why in e.value.why and "the bound on its errors may not hold" in e.value.why
    assert "share" not in ledger.path.read_text()


def test_nothing_is_shared_of_a_refused_answer(ledger: Ledger) -> None:
    ledger.answer(ANSWER)
    ledger.refuse(ANSWER)
    with pytest.raises(AtlasError, match="is not shared"):
        ledger.require_shareable(ANSWER, 30, 1)


def test_refused_answers_use_a_key_up(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for number in range(16):
        name = f"{number:032x}"
        ledger.add(replace(ASKED, query=name), "")
        answer = replace(ANSWER, query=name)
        ledger.answer(answer)
        assert ledger.refusals() == number
        for _ in range(2):  # read again, it tells nothing new
            ledger.refuse(answer)
        if number == 0:
            ledger.add(replace(ASKED, query="f" * 32), "")
    for call, entry in (
        (ledger.add, ASKED),
        (ledger.answer, replace(ANSWER, query="f" * 32)),
        (ledger.check, replace(ANSWER, query="f" * 32)),
    ):
        with pytest.raises(AtlasError, match="these keys are used up") as caught:
            call(entry)
        assert "make new keys with atlasc keygen" in caught.value.remedy
    ledger.check(answer)  # what was read before may be read again


def test_texts_that_end_where_the_server_sees_it_use_a_key_up(tmp_path: Path) -> None:
    """Each is one bit about a decrypted answer, as a refusal is."""
    ledger = Ledger(tmp_path)
    for number in range(16):
        name = f"{number:032x}"
        ledger.add(replace(ASKED, query=name), "")
        answer = replace(ANSWER, query=name)
        ledger.answer(answer)
        for _ in range(2):  # read again, it tells nothing new
            ledger.end(answer) if number % 4 else ledger.refuse(answer)
    assert (ledger.ended(), ledger.refusals()) == (12, 4)
    with pytest.raises(AtlasError, match="these keys are used up") as caught:
        ledger.add(ASKED)
    assert "12 ended a text where the server saw it" in caught.value.why
    ledger.check(answer)


def test_other_failures_use_nothing_up(ledger: Ledger) -> None:
    """A damaged or a wrong answer is refused before the key touches it."""
    ledger.answer(ANSWER)
    for _ in range(32):
        with pytest.raises(AtlasError, match="was answered before, and differently"):
            ledger.check(SECOND)
    assert ledger.refusals() == 0


def test_the_words_of_a_doubt_are_plain_json(ledger: Ledger) -> None:
    """Without escaped pairs of surrogates."""
    ledger.add(replace(ASKED, query="2" * 32), "😀" * 400)
    assert "😀" in ledger.path.read_text(encoding="utf-8")


def test_the_file_is_for_its_owner_alone(ledger: Ledger) -> None:
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    ledger.path.chmod(0o644)
    with pytest.raises(AtlasError, match="open to other users"):
        ledger.check(ANSWER)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "ledger.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(AtlasError, match="cannot be written"):
        Ledger(tmp_path).add(ASKED, "")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_line_that_was_cut_off_is_removed(ledger: Ledger) -> None:
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + whole[:30])
    ledger.check(ANSWER)
    assert ledger.path.read_bytes() == whole


@pytest.mark.parametrize("line", [b"{}", b"[" * 5000, b'{"event": "query"}', b"\xff", b"", SPENT])
def test_a_damaged_line_is_refused(ledger: Ledger, line: bytes) -> None:
    ledger.path.write_bytes(ledger.path.read_bytes() + line + b"\n")
    with pytest.raises(AtlasError, match="line 2 of the ledger .* is damaged"):
        ledger.share(ANSWER, 30, 1)


def test_entries_of_several_threads_are_all_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    names = [f"{n:032x}" for n in range(20)]
    threads = [
        threading.Thread(target=ledger.add, args=(replace(ASKED, query=name), "")) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        ledger.check(replace(ANSWER, query=name))
