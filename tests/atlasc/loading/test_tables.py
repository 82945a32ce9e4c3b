"""Rows of texts from files: tables, parquet, folders of datasets; what is left out is said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from text_models import text_model

from atlasc.ir.errors import AtlasError
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel

PAIRS = [("the cat sat", "a cat"), ('a, "mat', "the cat")]
LENGTH = 12


@pytest.fixture(scope="module")
def bert() -> LoadedModel:
    return text_model("bert")


def told(inputs: Inputs) -> str:
    notes: list[str] = []
    inputs.tell(lambda *parts: notes.append("\n".join(parts)))
    return "\n".join(notes)


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_tables_name_their_columns(bert: LoadedModel, tmp_path: Path) -> None:
    expected = inputs_of(PAIRS, bert, LENGTH)
    comma = '\ufeffsentence1,sentence2,label\nthe cat sat,a cat,1\n\n"a, ""mat",the cat,0\n'
    tab = 'idx\tsentence1\tsentence2\tlabel\n0\tthe cat sat\ta cat\tyes\n1\ta, "mat\tthe cat\tno\n'
    for name, text, labels in (("t.csv", comma, [1, 0]), ("t.tsv", tab, ["yes", "no"])):
        found = inputs_of(write(tmp_path / name, text), bert, LENGTH)
        assert found.digest() == expected.digest()
        assert found.labels is not None and found.labels.tolist() == labels
    assert "idx of the data is not read" in told(found)
    found = inputs_of(tmp_path / "t.csv", bert, LENGTH)
    assert found.names == ("t.csv:2", "t.csv:4")
    assert "1 blank line of t.csv is left out" in told(found) and "no text: 3" in told(found)
    scores = inputs_of(write(tmp_path / "s.csv", "text,label\na,0.5\ncat,3\n"), bert, LENGTH)
    assert scores.labels is not None and scores.labels.tolist() == [0.5, 3.0]


STRAY = [('"the cat sat', 0), ('on the mat"', 1), ("a b c", 2)]
"""Texts with stray quotes, and their labels: published sets such as SST-2 have such rows."""


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_stray_quote_moves_no_label(bert: LoadedModel, tmp_path: Path, end: str) -> None:
    expected = inputs_of([text for text, _ in STRAY], bert, LENGTH)
    lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in STRAY)]
    table = tmp_path / "t.tsv"
    table.write_bytes(("\ufeff" + end.join(lines) + end).encode())
    found = inputs_of(table, bert, LENGTH)
    assert found.digest() == expected.digest()
    assert found.labels is not None and found.labels.tolist() == [0, 1, 2]
    assert found.names == ("t.tsv:2", "t.tsv:3", "t.tsv:4") and told(found) == ""
    assert found.read == "t.tsv: 3 rows, columns text, label; without quoting"
    plain = tmp_path / "t.txt"
    plain.write_bytes(end.join(text for text, _ in STRAY).encode())
    assert inputs_of(plain, bert, LENGTH).digest() == expected.digest()


def test_fields_in_quotes_are_said(bert: LoadedModel, tmp_path: Path) -> None:
    found = inputs_of(write(tmp_path / "t.tsv", 'text\tlabel\n"a ""cat"\t0\na\t1\n'), bert, LENGTH)
    assert found.digest() == inputs_of(['"a ""cat"', "a"], bert, LENGTH).digest()
    assert "1 row has fields in quotes, which are read as characters" in told(found)
    assert "t.tsv:2" in told(found) and "write a .csv" in told(found)


def test_fields_of_several_lines_are_said(bert: LoadedModel, tmp_path: Path) -> None:
    found = inputs_of(write(tmp_path / "t.csv", 'text,label\n"a\ncat",0\nmat,1\n'), bert, LENGTH)
    assert found.digest() == inputs_of(["a\ncat", "mat"], bert, LENGTH).digest()
    assert "1 row of t.csv has a field of several lines" in told(found)
    assert found.read == "t.csv: 2 rows, columns text, label; quoted by RFC 4180"
    assert found.take([1]).read == found.read


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "text\tlabel\na\tcat\t0\n", "3 fields(.|\n)*t.tsv:2(.|\n)*write a .csv"),
        ("t.tsv", 'text\tlabel\n"a\ncat"\t0\n', "1 field,(.|\n)*t.tsv:2(.|\n)*write a .csv"),
        ("t.tsv", "text\tlabel\t\na\t0\t\n", "each once"),
        ("t.tsv", "text\tlabel\na\t0\t\n", "3 fields, but the first line names 2"),
        ("t.csv", "text,label\na,0,\n", "3 fields, but the first line names 2"),
        ("t.csv", "text,label\na\0,0\n", "NUL(.|\n)*t.csv:2"),
        ("t.tsv", "text\tlabel\na\t0\n\0\t0\n", "NUL(.|\n)*t.tsv:3"),
        ("t.txt", "a\nc\0a\0t\0\n", "NUL(.|\n)*t.txt:2(.|\n)*UTF-16"),
        ("t.jsonl", '{"text": "a"}\n\0\n', "NUL(.|\n)*t.jsonl:2"),
        ("t.csv", "", "is empty"),
        ("t.csv", "text\n", "is empty"),
        ("t.csv", "text,label\na\n", "1 field, but the first line names 2(.|\n)*t.csv:2"),
        ("t.csv", "text,text\na,b\n", "each once"),
        ("t.csv", 'text\na\n"a" b\n', "cannot be read(.|\n)*t.csv:3(.|\n)*double the quotes"),
        ("t.csv", 'text\na\n"b\nc\n', "cannot be read(.|\n)*t.csv:3"),
        ("t.csv", "text;label\na;0\n", "separated by ';'(.|\n)*t.csv:1(.|\n)*by commas in a .csv"),
        ("t.csv", "text\tlabel\na\t0\n", "separated by(.|\n)*t.csv:1"),
        ("t.tsv", "text,label\na,0\n", "separated by ','(.|\n)*by tabs in a .tsv"),
        ("t.csv", "a cat,0\nthe mat,1\n", 'either "text"(.|\n)*sentence1 and sentence2'),
        ("t.csv", "text,headline\na,b\n", '"headline" is not read'),
        ("t.csv", "sentence1,sentence2\na,b\ncat,\n", '"sentence2" must be(.|\n)*t.csv:3'),
        ("t.csv", "input_ids\n[1]\n", "must be a non-empty list of 64-bit integers"),
        ("t.parquet", "no parquet", "cannot be read"),
    ],
)
def test_broken_tables(
    bert: LoadedModel, tmp_path: Path, name: str, content: str, message: str
) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(AtlasError, match=message):
        inputs_of(write(tmp_path / name, content), bert, LENGTH)


def test_blank_lines_are_counted(bert: LoadedModel, tmp_path: Path) -> None:
    found = inputs_of(write(tmp_path / "t.txt", "a\n\ncat\n \n\nmat\n"), bert, LENGTH)
    assert found.names == ("t.txt:1", "t.txt:3", "t.txt:6")
    assert "3 blank lines of t.txt are left out" in told(found) and "2, 4, 5" in told(found)
    assert told(inputs_of(write(tmp_path / "u.txt", "a\ncat\n"), bert, LENGTH)) == ""


def test_labels_are_integers_names_or_numbers(bert: LoadedModel, tmp_path: Path) -> None:
    def labels(*values: Any) -> Inputs:
        lines = [json.dumps({"text": "a", **({} if v is None else {"label": v})}) for v in values]
        return inputs_of(write(tmp_path / "t.jsonl", "\n".join(lines)), bert, LENGTH)

    for values in ([1, 2], ["b", "a"], [0.5, 1.0]):
        found = labels(*values).labels
        assert found is not None and found.tolist() == values
    assert labels(None, None).labels is None and told(labels(None, None)) == ""
    for values in ([1, None], ["a", 1], [[1], [2]]):
        assert labels(*values).labels is None
        assert "labels are not read" in told(labels(*values))


def rows() -> list[dict[str, Any]]:
    return [{"sentence1": a, "sentence2": b, "label": at} for at, (a, b) in enumerate(PAIRS)]


def test_parquet_and_folders_of_datasets(bert: LoadedModel, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    expected = inputs_of(PAIRS, bert, LENGTH)
    table = pyarrow.Table.from_pylist(rows())
    parquet.write_table(table, tmp_path / "t.parquet")
    folder = tmp_path / "saved" / "train"
    folder.mkdir(parents=True)
    names = []
    for at in range(2):  # as datasets writes it
        names.append(f"data-0000{at}-of-00002.arrow")
        with pyarrow.ipc.new_stream(str(folder / names[-1]), table.schema) as writer:
            writer.write_table(table.slice(at, 1))
    state = {"_data_files": [{"filename": name} for name in names], "_split": "train"}
    write(folder / "state.json", json.dumps(state))
    write(tmp_path / "saved" / "dataset_dict.json", '{"splits": ["train"]}')
    for source in (tmp_path / "t.parquet", folder):
        found = inputs_of(source, bert, LENGTH)
        assert found.digest() == expected.digest()
        assert found.labels is not None and found.labels.tolist() == [0, 1]
    ids = {name: list(array) for name, array in expected.arrays.items()}
    parquet.write_table(pyarrow.table(ids), tmp_path / "ids.parquet")
    assert inputs_of(tmp_path / "ids.parquet", bert, LENGTH).digest() == expected.digest()
    with pytest.raises(AtlasError, match="several data sets: train") as caught:
        inputs_of(tmp_path / "saved", bert, LENGTH)
    assert str(folder) in caught.value.remedy
    (folder / names[1]).unlink()
    with pytest.raises(AtlasError, match=names[1]):
        inputs_of(folder, bert, LENGTH)
    write(folder / "state.json", "{}")
    with pytest.raises(AtlasError, match=r"state.json of a data set cannot be read"):
        inputs_of(folder, bert, LENGTH)


def test_without_pyarrow(
    bert: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(AtlasError, match="cannot be read") as caught:
        inputs_of(write(tmp_path / "t.parquet", "x"), bert, LENGTH)
    assert "pip install pyarrow" in caught.value.remedy and "pyarrow" in caught.value.why
