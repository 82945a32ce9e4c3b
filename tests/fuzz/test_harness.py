"""The harness itself: planted faults of every kind are found, and runs repeat exactly."""

from __future__ import annotations

import ast
import ctypes
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import read_json
from tests.fuzz import campaign
from tests.fuzz.content import Content, Link, Place
from tests.fuzz.mutate import by_name, mutated
from tests.fuzz.mutate_archives import zeros_npz
from tests.fuzz.reader import Reader, all_readers
from tests.fuzz.run import Result, Task, fuzz
from tests.fuzz.sites import ROOT, File, followed, openings, unread
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


def test_the_page_counts_every_reader() -> None:
    """The table has a row for each, and the last row has their sums."""
    page = (ROOT / "docs" / "fuzzing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| ([\d |]+) \|$", page.replace(",", ""), re.MULTILINE)
    counts = {name.strip("`"): [*map(int, cells.split(" | "))] for name, cells in rows}
    every = counts.pop("all")
    assert [*counts] == sorted(all_readers())
    assert every == [sum(column) for column in zip(*counts.values(), strict=True)]
    for inputs, accepted, refused, failed in counts.values():
        assert inputs == accepted + refused and failed == 0


def test_a_hang_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(path: Path) -> None:
        while path.read_bytes().startswith(b"{"):
            time.sleep(0.01)

    monkeypatch.setattr("tests.fuzz.worker.SECONDS", 0.02)
    result = result_of(hang, tmp_path, inputs=4)
    assert result.found and result.inputs == 4 and result.waited == []
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


def found_in(text: str, schemas: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """The openings of a file of Python that is called new."""
    tree = ast.parse(text)
    return [
        f"{function} {what}" for function, what, *_ in File("new.py", tree, schemas).openings(tree)
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import json\ndef f(p): return json.load(open(p))", {"f load", "f open"}),
        ("from json import loads as known\ndef f(p): return known(p)", {"f loads"}),
        ("import json\ndef f(ps): return list(map(json.loads, ps))", {"f loads passed on"}),
        ("from json import JSONDecoder as D\ndef f(p): return D().decode(p)", {"f JSONDecoder"}),
        ("def f(p):\n  with p.open() as file: return list(file)", {"f open"}),
        ("def f(p):\n  with p.open(encoding='utf-8') as file: return list(file)", {"f open"}),
        ("import io\ndef f(p): return io.open(p, mode='rb')", {"f open"}),
        ("import os\ndef f(n): return os.read(n, 9)", {"f read"}),
        ("def f(p): return Path(p).read_text()", {"f read_text"}),
        ("def f(p): return (p / NAME).read_bytes()", {"f read_bytes"}),
        ("PLACE = 1\ndef f(): return PLACE.read_bytes()", {"f read_bytes"}),
        ("import csv\nclass A:\n  def f(self, t): return csv.reader(t)", {"A.f reader"}),
        ("import numpy as np\ndef f(p): return np.load(p)", {"f load"}),
        ("from numpy import load\ndef f(p): return load(p)", {"f load"}),
        ("import tomllib as t\ndef f(p): return t.load(p)", {"f load"}),
        ("import sqlite3\ndef f(p): return sqlite3.connect(p)", {"f connect"}),
        ("async def f(request): return await request.json()", {"f json"}),
        ("async def f(request): return await request.body()", {"f body"}),
        ("@router.post('/x')\ndef f(x): return x", {"f endpoint"}),
        ("class H:\n  def do_PUT(self): pass", {"H.do_PUT endpoint"}),
        ("def f(self): return self.rfile.read(9)", {"f read"}),
        ("def f(link): return link.get('/x', New)", {" schema atlasc.new.New"}),
        ("def f(link): return link.get('/x', tuple[New, ...])", {" schema atlasc.new.New"}),
    ],
)  # fmt: skip
def test_a_new_reader_is_found(text: str, what: set[str]) -> None:
    assert {*found_in(text, {"New"})} == what
    (name, *_) = what
    assert unread([f"new.py:{name}"], {"new.py:f"}) == [f"new.py:{name}"]


@pytest.mark.parametrize(
    "text",
    [
        "def f(p):\n  with p.open('wb') as file: file.write(b'')",
        "def f(p):\n  with open(p, 'a') as file: file.write('')",
        "import json\ndef f(x): return json.dumps(x)",
        "def f(x): return Journal.open(x)",
        "def f(x): return x.load()",
    ],
)
def test_what_writes_or_is_read_elsewhere_is_no_reader(text: str) -> None:
    assert found_in(text) == []


def test_a_branch_that_is_not_taken_is_not_read(tmp_path: Path) -> None:
    """A function has two openings, and what it is given leads to the first one."""
    names = [name for name in openings() if name.startswith("ir/files.py:read_")]
    (tmp_path / "a.json").write_text("{}")
    with followed() as through:
        read_json(tmp_path / "a.json", dict[str, int], "a test", 100)
    assert "ir/files.py:read_json read_bytes" in through & {*names}
    assert "ir/files.py:read_npz ZipFile" in {*names} - through


def test_a_campaign_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill it reads what is left, each number once; a mended reader begins again."""
    told: list[tuple[str, int, int]] = []

    def read(task: Task) -> list[Result]:
        if len(told) == 3:
            raise KeyboardInterrupt
        told.append((task.name, task.first, task.inputs))
        return [Result(task.name, inputs=task.inputs, refused=task.inputs)]

    monkeypatch.setattr(campaign, "_apart", read)
    monkeypatch.setattr(campaign, "PIECE", 6_000)
    readers = {name: Reader(name, lambda _: [], lambda _: None, 1000) for name in ("a", "b")}
    place = tmp_path / "kept.json"
    with pytest.raises(KeyboardInterrupt):
        campaign.run(place, readers, 100, 7)
    told.clear()
    found = campaign.run(place, readers, 100, 7)
    assert told == [("b", 6000, 4000)]
    assert {one.result.inputs for one in found.readers.values()} == {10_000}
    assert found.table().splitlines()[-1] == "| all | 20,000 | 0 | 20,000 | 0 |"
    told.clear()
    campaign.run(place, readers, 100, 7, again=["a"])
    assert told == [("a", 0, 6000), ("a", 6000, 4000)]
    with pytest.raises(ValueError, match="has seed 7"):
        campaign.run(place, readers, 100, 8)


def test_a_starved_input_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits too long once, and not when it is read alone."""

    def wait_once(path: Path) -> None:
        mark = tmp_path / "waited"
        if not mark.exists():
            mark.touch()
            time.sleep(60)
        refuse(path)

    monkeypatch.setattr("tests.fuzz.worker.SECONDS", 1)
    result = result_of(wait_once, tmp_path, inputs=3)
    assert (result.found, result.waited, result.refused) == ([], ["1-0"], 3)
