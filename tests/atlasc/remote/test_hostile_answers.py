"""Each fact and each array of an answer, one by one, sealed again as a forger would: the client in
Python refuses all of them. tests/atlasc/emit/files/test_bound_messages.py has the same for C++.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.api.roles import make_keys
from atlasc.bundle.folder import load_bundle
from atlasc.ir.errors import AtlasError
from tests.sealed_files import Array, opened, sealed

pytestmark = pytest.mark.filterwarnings("ignore:the target sim is a simulation")
LIES = ("", "\x1b[2J", "f" * 64, "f" * 32, "0", "-1", "9" * 5000, "x" * 100_000, "cpu", "query")
"""What a hostile server says in place of any fact."""


def forged(answer: bytes) -> Iterator[tuple[str, bytes]]:
    """The answer with one change: what, and the content."""
    facts, arrays = opened(answer)
    assert len(facts) >= 5 and arrays
    for name, known in facts.items():
        rest = {one: value for one, value in facts.items() if one != name}
        yield f"without {name}", sealed(rest, arrays)
        for lie in {*LIES} - {known}:
            yield f"{name} {lie[:20]!r}", sealed({**facts, name: lie}, arrays)
    yield "one fact more", sealed({**facts, "\x1b[2J": "\x1b[2J"}, arrays)
    for name, array in arrays.items():
        rest_of = {one: value for one, value in arrays.items() if one != name}
        yield f"without {name}", sealed(facts, rest_of)
        yield f"{name} under another name", sealed(facts, {**rest_of, "\x1b[2J": array})
        for what, other in {
            "nothing": Array("U8", (0,), b""),
            "a byte less": Array("U8", (len(array.data) - 1,), array.data[:-1]),
            "numbers": Array("F64", (1,), bytes(8)),
            "another shape": Array(array.dtype, (1, *array.shape), array.data),
            "another key": Array(array.dtype, array.shape, bytes(len(array.data))),
        }.items():
            yield f"{name} is {what}", sealed(facts, {**arrays, name: other})
        yield f"{name} twice", sealed(facts, {**arrays, f"{name}x": array})


def test_each_fact_of_an_answer(tiny: Tiny, tmp_path: Path) -> None:
    make_keys(load_bundle(tiny.bundle), tmp_path / "keys")
    client = atlasc.Client(tiny.bundle, tmp_path / "keys")
    query = client.encrypt(np.zeros((1, 1, 8, 8), np.float32))
    answer = atlasc.Server(tiny.bundle, tmp_path / "keys").execute(query)
    taken: list[str] = []
    for what, content in forged(answer):
        try:
            client.decrypt(content)
            taken.append(what)
        except AtlasError as error:
            taken += [what] if "\x1b" in error.render() else []
    assert taken == []
    assert client.decrypt(answer).outputs, "the honest one is still taken"
