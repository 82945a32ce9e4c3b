"""The harness itself: planted faults of every kind are found, and runs repeat exactly."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from atlasc.ir.errors import AtlasError
from tests.fuzz.content import Content, Link, Place
from tests.fuzz.mutate import by_name, mutated
from tests.fuzz.mutate_archives import zeros_npz
from tests.fuzz.reader import Reader
from tests.fuzz.run import Result, Task, fuzz
from tests.fuzz.worker import WAITED


def result_of(
    read: Callable[[Path], Any],
    tmp_path: Path,
    same: Callable[[list[Any], Any], bool] | None = None,
    inputs: int = 40,
) -> Result:
    """Some inputs for a reader that treats a valid file well."""

    def seeds(folder: Path) -> list[Path]:
        (folder / "valid.json").write_text('{"valid": 1}')
        return [folder / "valid.json"]

    def wrapped(path: Path) -> Any:
        return "valid" if path.read_bytes() == b'{"valid": 1}' else read(path)

    reader = Reader("planted", seeds, wrapped, 1, same)
    [result] = fuzz(Task("planted", 1, inputs, results=tmp_path / "results"), reader)
    return result


def refuse(path: Path) -> None:
    raise AtlasError("no")


class RudeError(AtlasError):
    """An error that does not clean its text."""

    def render(self) -> str:
        return "\x1b[31mred"


def refuse_rudely(path: Path) -> None:
    raise RudeError("no")


def break_off(path: Path) -> None:
    {}["missing"]


def run_out_of_memory(path: Path) -> None:
    try:
        bytearray(1 << 36)
    except MemoryError as error:
        raise AtlasError("cannot be read", why=str(error)) from None


def take_memory(path: Path) -> int:
    return len(b"x" * (3 << 29))


def keep_memory(path: Path) -> int:
    libc, most = ctypes.CDLL(None), 2**31 - 1
    libc.mallopt(-3, most), libc.mallopt(-1, most)  # nothing is mapped alone, nothing trimmed
    return take_memory(path)


def segfault(path: Path) -> None:
    os.kill(os.getpid(), 11)


def leave(path: Path) -> None:
    os._exit(3)


def say(path: Path) -> None:
    print("hello")


def complain(path: Path) -> None:
    os.write(2, b"library: what is this?\n")


def test_a_reader_that_refuses_is_fine(tmp_path: Path) -> None:
    result = result_of(refuse, tmp_path)
    assert (result.inputs, result.refused, result.found) == (40, 40, [])
    result = result_of(lambda path: None, tmp_path)
    assert (result.inputs, result.accepted, result.found) == (40, 40, [])
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (break_off, "KeyError"),
        (refuse_rudely, "control characters"),
        (run_out_of_memory, "memory"),
        (take_memory, "memory"),
        (keep_memory, "memory"),
        (segfault, "crash: SIGSEGV"),
        (leave, "crash: exit"),
        (say, "output"),
        (complain, "output"),
    ],
)
def test_a_fault_is_found_in_every_input(
    read: Callable[[Path], Any], kind: str, tmp_path: Path
) -> None:
    result = result_of(read, tmp_path, inputs=2)
    assert [found.kind for found in result.found] == [kind]
    assert result.found[0].count == 2
    saved = [Path(place) for place in result.found[0].saved]
    assert [place.name for place in saved] == ["1-0.json", "1-1.json"]
    assert all(place.with_suffix(".failure").exists() for place in saved)


def test_a_hang_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(path: Path) -> None:
        while path.read_bytes().startswith(b"{"):
            time.sleep(0.01)

    monkeypatch.setattr("tests.fuzz.worker.SECONDS", 0.02)
    result = result_of(hang, tmp_path, inputs=4)
    assert sum(found.count for found in result.found) == 4 and result.waited == []
    assert {found.kind for found in result.found} <= {"hang", WAITED}


def test_another_meaning_is_found(tmp_path: Path) -> None:
    assert result_of(lambda path: "valid", tmp_path, lambda seeds, one: one in seeds).found == []
    result = result_of(lambda path: "x", tmp_path, lambda seeds, one: one in seeds)
    assert [found.kind for found in result.found] == ["accepted with another meaning"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.air", "a.npz", "a.safetensors", "a.bin"])
def test_mutations_differ_and_repeat(name: str) -> None:
    import numpy as np
    from safetensors.numpy import save

    archive = zeros_npz("x", 1)
    data = {
        "json": b'{"a": [1, 2.5, "text"], "b": {"c": null}}',
        "jsonl": b'{"a": 1}\n{"b": [2]}\n',
        "air": b'module @m : nn {\n  %x = nn.input {name = "x", shape = [1, 2]}\n}\n',
        "npz": archive,
        "safetensors": save({"w": np.arange(6.0)}),
        "bin": bytes(range(64)),
    }[name.rpartition(".")[2]]
    made = [by_name(name)(Random(n), data, data) for n in range(200)]
    assert made == [by_name(name)(Random(n), data, data) for n in range(200)]
    assert len({*made} - {data}) > 120


def test_folders_are_changed_file_by_file(tmp_path: Path) -> None:
    whole = Content("folder", {"index.json": b'{"a": 1}', "deep/data.ct": b"123"})
    contents = [mutated(Random(n), [whole]) for n in range(300)]
    assert any(isinstance(f, Link) for content in contents for f in content.files.values())
    assert {len(content.files) for content in contents} == {1, 2, 3}
    place = Place(tmp_path)
    for content in contents:
        path = place.put(content)
        there = {str(p.relative_to(path)) for p in path.rglob("*") if p.is_symlink() or p.is_file()}
        assert there == set(content.files)
        for name, file in content.files.items():
            if isinstance(file, bytes):
                assert (path / name).read_bytes() == file


def test_a_bomb_is_small_and_valid(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "bomb.npz").write_bytes(zeros_npz("x", 40))
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 18
    with np.load(tmp_path / "bomb.npz") as file:
        assert file["x"].nbytes == 40 << 20 and not file["x"].any()


def test_the_seed_decides_what_a_reader_is_given() -> None:
    reader = Reader("x", lambda folder: [], lambda path: None, 1)
    seeds = [Content("a.json", {"": b'{"a": 1}'})]
    first = [reader.input(1, number, seeds) for number in range(50)]
    assert first == [reader.input(1, number, seeds) for number in range(50)]
    assert first != [reader.input(2, number, seeds) for number in range(50)]
    assert sys.getrecursionlimit() == 1000  # the mutators must not need another
