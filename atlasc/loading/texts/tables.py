"""Files of rows: `.txt`, `.jsonl`, `.csv`, `.tsv`, `.parquet`, and folders of `datasets`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import GIB, MIB, open_plain, parse_json, read_text
from atlasc.loading.texts.rows import LABEL_KEYS

MAX_TEXTS = 256 * MIB
"""Greatest size in bytes of a file of texts; a tokenizer needs about fifty times its size."""
MAX_TABLE = 4 * GIB
"""Greatest size in bytes of a .parquet or .arrow file, also after expansion."""
MAX_LINE = MIB
"""Greatest number of characters of one input."""
MAX_SHARDS = 1 << 16
LISTED = 10
"""Number of blank lines that a note names."""
STATE, SPLITS = "state.json", "dataset_dict.json"
"""Files in a folder that `datasets` wrote: of one data set, and of several."""

Row = dict[str, Any]
Rows = tuple[dict[str, Row], list[tuple[str, str]]]
"""Rows under names such as "texts.txt:3", and notes on what was left out."""


def is_dataset(folder: Path) -> bool:
    """Whether `datasets` wrote a folder (save_to_disk)."""
    return (folder / STATE).is_file() or (folder / SPLITS).is_file()


def read_rows(source: Path) -> Rows:
    """The rows of a file or folder.

    Raises:
        AtlasError: the file cannot be read, is too large, or is empty; or pyarrow is missing.
    """
    read = read_dataset if source.is_dir() else READERS[source.suffix.lower()]
    rows, notes = read(source)
    if not rows:
        raise AtlasError(f"data {source} is empty", remedy="write one input a line")
    return rows, notes


def _read_texts(source: Path) -> Rows:
    lines, notes = _lines(source)
    return {name: {"text": line} for name, line in lines.items()}, notes


def _read_json_lines(source: Path) -> Rows:
    lines, notes = _lines(source)
    rows = {}
    for name, line in lines.items():
        with explained("not a JSON object", name):
            rows[name] = parse_json(line, dict[str, Any])
    return rows, notes


def _lines(source: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Every line that is not blank, under a name such as "texts.txt:3"."""
    content = read_text(source, MAX_TEXTS).removesuffix("\n").split("\n")
    lines = {f"{source.name}:{at}": one.rstrip("\r") for at, one in enumerate(content, 1)
             if one.strip()}  # fmt: skip
    if lines:
        longest = max(lines, key=lambda name: len(lines[name]))
        _require_short(len(lines[longest]), longest)
    return lines, _blank(source, [at for at, one in enumerate(content, 1) if not one.strip()])


def _require_short(length: int, where: str) -> None:
    if length > MAX_LINE:
        raise AtlasError(
            f"a line of {length} characters is longer than any input",
            where=where,
            why=f"a line may have at most {MAX_LINE}",
            remedy="write one input a line",
        )


def _blank(source: Path, blank: list[int]) -> list[tuple[str, str]]:
    if not blank:
        return []
    count = "1 blank line" if len(blank) == 1 else f"{len(blank)} blank lines"
    numbers = ", ".join(map(str, blank[:LISTED])) + (", ..." if len(blank) > LISTED else "")
    return [
        (
            f"{count} of {source.name} {'is' if len(blank) == 1 else 'are'} left out",
            f"  why: a blank line is no text: {numbers}\n"
            "  what to do: nothing, unless you count rows: --index and answers skip blank lines",
        )
    ]


def _read_table(source: Path) -> Rows:
    """A table whose first line names its columns."""
    dialect = csv.excel_tab if source.suffix.lower() == ".tsv" else csv.excel
    text = io.StringIO(read_text(source, MAX_TEXTS).removeprefix("\ufeff"), newline="")
    reader, rows, blank, start = csv.reader(text, dialect, strict=True), {}, [], 1
    names: list[str] = []
    with explained("the table cannot be read", source, "quote fields that hold quotes or commas"):
        for fields in reader:
            name, start = f"{source.name}:{start}", reader.line_num + 1
            if not fields:
                blank.append(reader.line_num)
                continue
            _require_short(sum(map(len, fields)), name)
            if not names:
                names = _column_names(fields, name)
                continue
            if len(fields) != len(names):
                raise AtlasError(
                    f"a row has {len(fields)} fields, but the first line names {len(names)} "
                    "columns",
                    where=name,
                    remedy="quote fields that hold the separator",
                )
            rows[name] = {key: value for key, value in zip(names, fields, strict=True) if key}
    _number_labels(rows)
    return rows, _blank(source, blank)


def _column_names(fields: list[str], where: str) -> list[str]:
    """The names of the columns. The first may be blank, because pandas writes the index so."""
    names = [field.strip() for field in fields]
    if "" in names[1:] or len(set(names)) < len(names):
        raise AtlasError(
            "the first line must name the columns, each once",
            where=where,
            why=f"the first line is {', '.join(names)[:100]}",
            remedy="write for example: text,label",
        )
    return ["index" if at == 0 and not name else name for at, name in enumerate(names)]


def _number_labels(rows: dict[str, Row]) -> None:
    """Turn the labels of a table into numbers if all of them read as numbers."""
    for key in LABEL_KEYS:
        labelled = [row for row in rows.values() if key in row]
        for kind in (int, float):
            try:
                numbers = [kind(row[key]) for row in labelled]
            except ValueError:
                continue
            if all(map(math.isfinite, numbers)):
                for row, number in zip(labelled, numbers, strict=True):
                    row[key] = number
                break


def _read_parquet(source: Path) -> Rows:
    with _pyarrow(source), open_plain(source, MAX_TABLE) as file:
        from pyarrow import parquet

        table = parquet.ParquetFile(file)
        groups = range(table.metadata.num_row_groups)
        size = sum(table.metadata.row_group(at).total_byte_size for at in groups)
        _require_size(size, source)
        rows = table.read().to_pylist()
    return {f"{source.name}[{at}]": row for at, row in enumerate(rows)}, []


def read_dataset(folder: Path) -> Rows:
    """The rows of a folder that `datasets` wrote."""
    if not (folder / STATE).is_file():
        splits = sorted(path.name for path in folder.iterdir() if (path / STATE).is_file())
        raise AtlasError(
            f"data {folder} has several data sets: {', '.join(splits)}",
            remedy=f"give one data set: {folder / (splits[0] if splits else 'train')}",
        )
    with explained(f"{STATE} of a data set cannot be read", folder / STATE):
        state = parse_json(read_text(folder / STATE, MIB), dict[str, Any])
        names = [str(part["filename"]) for part in state["_data_files"]][:MAX_SHARDS]
    rows: list[Row] = []
    size = 0
    for name in names:
        path = folder / Path(name).name
        with _pyarrow(path), open_plain(path, MAX_TABLE) as file:
            from pyarrow import ipc

            table = ipc.open_stream(file).read_all()
            size += table.nbytes
            _require_size(size, folder)
            rows += table.to_pylist()
    return {f"{folder.name}[{at}]": row for at, row in enumerate(rows)}, []


@contextmanager
def _pyarrow(source: Path) -> Iterator[None]:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise AtlasError(
            f"data {source} cannot be read",
            why="reading it needs pyarrow, which is not installed",
            remedy="pip install 'atlasc[data]', or write the data as .csv or .jsonl",
        ) from error
    with explained(f"data {source} cannot be read", remedy="write the file again"):
        yield


def _require_size(size: int, source: Path) -> None:
    if size > MAX_TABLE:
        raise AtlasError(
            f"data {source} is too large",
            why=f"the file expands to {size / GIB:.1f} GiB; the limit is {MAX_TABLE // GIB} GiB",
            remedy="give a part of the data",
        )


READERS: dict[str, Callable[[Path], Rows]] = {
    ".txt": _read_texts,
    ".jsonl": _read_json_lines,
    ".csv": _read_table,
    ".tsv": _read_table,
    ".parquet": _read_parquet,
}
"""Suffix of a file -> function that reads it."""
