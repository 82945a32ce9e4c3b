"""Inputs of all sources are distinct, of the lengths that they should have, always the same."""

import ast
import subprocess
import sys

import pytest

from benchmarks.fidelity import sources
from benchmarks.fidelity.sources import LENGTHS, SHORT, SOURCES, TOKENS, rows, texts

MOST = TOKENS - 2
TOKENIZER = texts.load_tokenizer()
CALIBRATION = 400


def ids(row) -> list[int]:
    """Without the special tokens."""
    if isinstance(row, str):
        return TOKENIZER.encode(row, add_special_tokens=False).ids
    return row[1:-1]


@pytest.mark.deep("benchmarks")
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("source", SOURCES)
def test_distinct_inputs_of_the_right_lengths(source, length):
    found = rows(source, length, 700)
    encoded = [ids(row) for row in found]
    assert len({tuple(tokens) for tokens in encoded}) == len(found) == 700
    assert all("\n" not in row for row in found if isinstance(row, str))
    sizes = sorted(map(len, encoded))
    if length == "full":
        assert sizes[0] >= sources.LEAST * MOST and MOST - 3 <= sizes[-1] <= MOST
    elif length == "short":
        assert sizes[0] == 1 and sizes[-1] <= SHORT and 6 <= sizes[350] <= 12
    else:
        # Log-uniform: as many below the square root of the limit as above it.
        assert sizes[0] == 1 and MOST - 4 <= sizes[-1] <= MOST and 5 <= sizes[350] <= 11


@pytest.mark.deep("benchmarks")
@pytest.mark.parametrize("source", ["descriptions", "code"])
def test_enough_to_calibrate_and_to_test(source):
    assert len(rows(source, "full", 900)) == 900


@pytest.mark.deep("benchmarks")
@pytest.mark.parametrize("source", SOURCES)
def test_inputs_behind_the_skipped_ones_are_no_parts_of_them(source):
    unseen = rows(source, "full", 200, skip=CALIBRATION)
    assert unseen[10:40] == rows(source, "full", 30, skip=CALIBRATION + 10)
    assert not {tuple(row) for row in unseen} & {
        tuple(row) for row in rows(source, "full", CALIBRATION)
    }
    for length in ("short", "mixed"):
        parts = rows(source, length, 100, skip=CALIBRATION)
        if source == "random":
            assert all(p[:-1] == u[: len(p) - 1] for p, u in zip(parts, unseen, strict=False))
        else:
            assert all(any(part in row for row in unseen) for part in parts)


@pytest.mark.deep("benchmarks")
def test_short_texts_are_beginnings_of_full_ones_and_whole_lines():
    full = rows("prose", "full", 50)
    assert all(f.startswith(s) for f, s in zip(full, rows("prose", "short", 50), strict=True))
    lines = set(sources.summaries())
    short = rows("descriptions", "short", 100)
    assert sum(row in lines for row in short) >= 80


def test_sources_share_no_text():
    described = " ".join(sources.summaries())
    paragraphs = {p for t in texts.docstrings() for p in texts.prose(t)}
    assert paragraphs & set(sources.summaries())
    assert not any(row in described for row in rows("prose", "full", 300))


def test_docstrings_are_no_code():
    source = 'def f():\n    """Say nothing."""\n    return 1  # one\n\n"""No docstring."""\n'
    left = sources.without_docstrings(source, ast.parse(source))
    assert left == 'def f():\n\n    return 1  # one\n\n"""No docstring."""\n'


def test_random_ids_are_no_special_ones():
    drawn = {token for row in rows("random", "full", 200) for token in ids(row)}
    special = {TOKENIZER.token_to_id(name) for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")}
    special |= {TOKENIZER.token_to_id("[unused7]")}
    assert not drawn & special and len(drawn) > 5000
    assert all(row[0] == 101 and row[-1] == 102 for row in rows("random", "mixed", 50))


def test_too_many_inputs_are_refused():
    with pytest.raises(ValueError, match="licences, full: only .* are left after the first 700"):
        rows("licences", "full", 400, skip=700)


@pytest.mark.deep("benchmarks")
def test_another_process_makes_the_same():
    made = subprocess.run(
        [sys.executable, sources.__file__, "prose", "--length=mixed", "--count=5", "--skip=3"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert made.stdout.splitlines() == rows("prose", "mixed", 5, skip=3)
