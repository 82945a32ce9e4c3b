"""Files of rows: `.txt`, `.jsonl`, `.csv`, `.tsv`, `.parquet`, and folders of `datasets`."""

from __future__ import annotations

import csv
import io
import math
import mmap
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from atlasc.ir.errors import AtlasError, counted, explained, listed
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

QUOTED = re.compile('"(?:[^"]|"")*"')
"""A field that a program wrote which quotes fields."""
LINE_END = re.compile("\r\n|\n|\r")
"""What ends a line, for Python's ``open`` too."""

SEPARATORS = (";", "|", "\t", ",")
"""What separates columns in files that call themselves .csv or .tsv."""

Row = dict[str, Any]


class Rows(NamedTuple):
    """Rows of a file.

    Attributes:
        rows: under names such as "texts.txt:3".
        notes: what was left out, or may have been meant otherwise: headline and details.
        read: how a table was read, in words; empty for other files.
    """

    rows: dict[str, Row]
    notes: list[tuple[str, str]]
    read: str = ""


def is_dataset(folder: Path) -> bool:
    """Whether `datasets` wrote a folder (save_to_disk)."""
    return (folder / STATE).is_file() or (folder / SPLITS).is_file()


def read_rows(source: Path) -> Rows:
    """The rows of a file or folder.

    Raises:
        AtlasError: the file cannot be read, is too large, or is empty; or pyarrow is missing.
    """
    read = read_dataset if source.is_dir() else READERS[source.suffix.lower()]
    found = read(source)
    if not found.rows:
        raise AtlasError(f"data {source} is empty", remedy="write one input a line")
    return found


def _read_texts(source: Path) -> Rows:
    lines, notes = _lines(source)
    return Rows({name: {"text": line} for name, line in lines.items()}, notes)


def _read_json_lines(source: Path) -> Rows:
    lines, notes = _lines(source)
    rows = {}
    for name, line in lines.items():
        with explained("not a JSON object", name):
            rows[name] = parse_json(line, dict[str, Any])
    return Rows(rows, notes)


def _lines(source: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Every line that is not blank, under a name such as "texts.txt:3"."""
    content = LINE_END.split(_content(source))
    if content[-1] == "":  # behind the end of the last line
        content.pop()
    lines = {f"{source.name}:{at}": one for at, one in enumerate(content, 1) if one.strip()}
    if lines:
        longest = max(lines, key=lambda name: len(lines[name]))
        _require_short(len(lines[longest]), longest)
    return lines, _blank(source, [at for at, one in enumerate(content, 1) if not one.strip()])


def _content(source: Path) -> str:
    """The text of a file. Raises AtlasError if it is not UTF-8, or holds a NUL character."""
    text = read_text(source, MAX_TEXTS)
    if (at := text.find("\0")) >= 0:
        raise AtlasError(
            "the data holds a NUL character",
            where=f"{source.name}:{1 + len(LINE_END.findall(text, 0, at))}",
            why="it is no text in UTF-8; a file in UTF-16 has a NUL in every second byte",
            remedy="write the file in UTF-8: iconv -f UTF-16 -t UTF-8 FILE",
        )
    return text


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


def _read_tsv(source: Path) -> Rows:
    """A table without quoting, as GLUE and other sets are published: a row a line, a quote is a
    character. Its first line names the columns.
    """
    lines, notes = _lines(source)
    rows = {name: line.split("\t") for name, line in lines.items()}
    found = _table(source, rows, "a field with a tab or a line break needs quotes: write a .csv")
    quoted = [n for n, row in found.items() if any(map(QUOTED.fullmatch, map(str, row.values())))]
    if quoted:
        count = counted(len(quoted), "row has", "rows have")
        notes.append(
            (
                f"{count} fields in quotes, which are read as characters",
                f"  why: sets in .tsv are published without quoting: {listed(quoted)}\n"
                "  what to do: nothing, if the quotes belong to the texts; otherwise write a .csv",
            )
        )
    return Rows(found, notes, _how(source, found, "without quoting"))


def _read_csv(source: Path) -> Rows:
    """A table with quoting (RFC 4180). Its first line names the columns."""
    text = io.StringIO(_content(source).removeprefix("\ufeff"), newline="")
    reader, rows, blank, start = csv.reader(text, strict=True), {}, [], 1
    try:
        for fields in reader:
            name, start = f"{source.name}:{start}", reader.line_num + 1
            if not "".join(fields).strip() and len(fields) < 2:
                blank.append(reader.line_num)
                continue
            _require_short(sum(map(len, fields)), name)
            rows[name] = fields
    except csv.Error as error:
        raise AtlasError(
            "the table cannot be read",
            where=f"{source.name}:{start}",
            why=f"{error}, in the row that begins there",
            remedy="quote fields that hold quotes or commas, and double the quotes in them",
        ) from None
    found, notes = _table(source, rows, "quote fields that hold the separator"), []
    if several := [name for name, row in rows.items() if any(map(LINE_END.search, row))]:
        count = counted(len(several), "row of", "rows of")
        notes.append(
            (
                f"{count} {source.name} {'has' if len(several) == 1 else 'have'} a field of "
                "several lines",
                f"  why: a line break in quotes belongs to its field: {listed(several)}\n"
                "  what to do: nothing, if this is meant; otherwise double the stray quotes",
            )
        )
    return Rows(found, [*notes, *_blank(source, blank)], _how(source, found, "quoted by RFC 4180"))


def _table(source: Path, lines: dict[str, list[str]], remedy: str) -> dict[str, Row]:
    """The rows of a table, whose first line names the columns."""
    names: list[str] = []
    rows: dict[str, Row] = {}
    for name, fields in lines.items():
        if not names:
            names = _column_names(fields, name)
            continue
        if len(fields) != len(names):
            raise AtlasError(
                f"a row has {counted(len(fields), 'field', 'fields')}, but the first line names "
                f"{len(names)} columns",
                where=name,
                remedy=remedy,
            )
        rows[name] = dict(zip(names, fields, strict=True))
    _number_labels(rows)
    return rows


def _how(source: Path, rows: dict[str, Row], quoting: str) -> str:
    columns = ", ".join(next(iter(rows.values()), {}))
    count = counted(len(rows), "row", "rows")
    return f"{source.name}: {count}, columns {columns}; {quoting}"


def _column_names(fields: list[str], where: str) -> list[str]:
    """The names of the columns. The first may be blank, because pandas writes the index so."""
    names = [field.strip() for field in fields]
    other = next((mark for mark in SEPARATORS if len(names) == 1 and mark in names[0]), "")
    if other:
        raise AtlasError(
            f"the columns are separated by {other!r}",
            where=where,
            why=f"the first line is {names[0][:100]}",
            remedy="separate the columns by commas in a .csv and by tabs in a .tsv",
        )
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
        rows = _rows(table.read())
    return Rows({f"{source.name}[{at}]": row for at, row in enumerate(rows)}, [])


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
            import pyarrow
            from pyarrow import ipc

            # Mapped, a message that claims to be longer than the file is refused, not allocated.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            table = ipc.open_stream(pyarrow.py_buffer(mapped)).read_all()
            size += table.nbytes
            _require_size(size, folder)
            rows += _rows(table)
    return Rows({f"{folder.name}[{at}]": row for at, row in enumerate(rows)}, [])


def _rows(table: Any) -> list[Row]:
    """The rows of a table, once its arrays are checked: pyarrow believes a file otherwise."""
    table.validate(full=True)
    found: list[Row] = table.to_pylist()
    return found


@contextmanager
def _pyarrow(source: Path) -> Iterator[None]:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise AtlasError(
            f"data {source} cannot be read",
            why="reading it needs pyarrow, which is not installed",
            remedy="pip install pyarrow, or write the data as .csv or .jsonl",
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
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
}
"""Suffix of a file -> function that reads it."""
