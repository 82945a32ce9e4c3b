"""Objects of other libraries, turned into lists and mappings.

pandas, polars and datasets are no dependencies: their objects are recognised by their methods.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError, counted

WORDS = "join words to a text: ' '.join(words)"
"""What to do with a text that is divided into words."""
MAX_ROWS = 1 << 24
"""Greatest number of rows of iterated data, which may have no end."""


def plain(data: object) -> object:
    """Turn a DataFrame, a Series, a data set or a loader into a list, a dictionary or an array.

    Other data is returned as it is.

    Raises:
        AtlasError: the data is several data sets at once, or has no end.
    """
    known: Any = data
    if isinstance(data, np.ndarray) and data.dtype.kind in "OTU" and data.size:
        found = np.atleast_1d(data).tolist()
        return found if all(map(_is_text, np.ravel(data).tolist())) else data
    if isinstance(data, str | np.ndarray) or hasattr(data, "detach"):
        return data
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        return known.to_dict(orient="records")
    if hasattr(data, "to_dicts"):  # polars
        return known.to_dicts()
    if isinstance(data, Mapping):
        split = next((key for key, one in data.items() if hasattr(one, "column_names")), None)
        if split is not None:
            raise AtlasError(
                f"data has several data sets: {', '.join(map(str, data))}",
                remedy=f"give one data set: data[{split!r}]",
            )
        return dict(data)
    if hasattr(data, "to_list"):  # a Series
        return known.to_list()
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "__iter__"):
        return [known[row] for row in range(len(known))]  # a data set of torch
    if isinstance(data, Iterable) and not isinstance(data, Sequence):
        rows = list(itertools.islice(data, MAX_ROWS + 1))
        if len(rows) > MAX_ROWS:
            raise AtlasError(
                f"data has more than {MAX_ROWS} rows, or no end", remedy="give a part of the data"
            )
        tensors = (isinstance(row, list) and row and hasattr(row[0], "detach") for row in rows)
        return [tuple(row) if is_tuple else row  # a loader of torch makes lists of tuples
                for row, is_tuple in zip(rows, tensors, strict=True)]  # fmt: skip
    return data


def stacked(
    items: Sequence[Any], main: str, batches: bool, rank: int | None = None
) -> dict[str, Any] | None:
    """Rows or batches of arrays, such as a data set or a loader of images yields, by name; None if
    the items are something else, or have different members.

    Args:
        items: mappings from names to arrays, arrays, or tuples of an array and, if it is labelled,
            its label.
        main: the name of the model's main input.
        batches: see :func:`yields_batches`; a number beside the arrays shows rows.
        rank: axes of a batch of the main input, which say so too, if they are known.
    """
    rows = [_by_name(item, main, batches) for item in items]
    if any(row.keys() != rows[0].keys() or main not in row for row in rows):
        return None
    columns = {name: [array_of(row[name]) for row in rows] for name in rows[0]}
    if rank is not None:
        batches = columns[main][0].ndim == rank
    if any(array.ndim == 0 for arrays in columns.values() for array in arrays):
        batches = False
    join = np.concatenate if batches else np.stack
    return {name: join(arrays) for name, arrays in columns.items()}


def yields_batches(data: object) -> bool:
    """Whether the items of data in memory are batches: a loader yields them, while a list or a data
    set has rows.
    """
    return not hasattr(data, "__getitem__") and getattr(data, "batch_size", 1) is not None


def _by_name(item: Any, main: str, batches: bool) -> Mapping[str, Any]:
    """A row or a batch by names; empty if it is none of an array, with or without a label."""
    if isinstance(item, Mapping):
        return item
    first, *others = item if isinstance(item, tuple) and item else (item,)
    labels = [one for one in others if getattr(one, "ndim", 0) == batches]
    if getattr(first, "ndim", 0) == 0 or len(labels) < len(others) or len(others) > 1:
        return {}
    return {main: first} | dict(zip(("labels",), others, strict=False))


def rows_of(data: Mapping[str, Any] | Sequence[Any]) -> list[dict[str, Any]] | None:
    """Rows of texts or ids; None if the data is something else.

    A mapping is one row, or columns of rows (the output of a tokenizer, or a batch of a loader). A
    row in a sequence is a mapping, a text, a pair of texts, or a list of ids.
    """
    if isinstance(data, Mapping):
        return _divided(data)
    rows: list[dict[str, Any]] = []
    texts = any(isinstance(row, str) for row in data)
    for row in data:
        if isinstance(row, tuple) and any(getattr(one, "ndim", 0) for one in row):
            raise AtlasError(
                "a row or a batch of the data is a tuple of arrays, which have no names",
                where=f"data[{len(rows)}]",
                remedy="give mappings: {'input_ids': ids, 'attention_mask': mask}",
            )
        value = simple(row)
        if isinstance(value, Mapping):
            rows += _divided(value)
        elif isinstance(value, list) and len(value) == 2 and any(isinstance(v, str) for v in value):
            rows.append(dict(zip(("text", "text_pair"), value, strict=True)))
        elif isinstance(value, list):
            if value and all(map(_is_text, value)):
                raise AtlasError(
                    f"a row of the data is a list of {counted(len(value), 'string', 'strings')}",
                    where=f"data[{len(rows)}]",
                    why="a row is a text, a pair of texts, or a list of token ids",
                    remedy=WORDS,
                )
            rows.append({"input_ids": value})
        elif isinstance(value, str) or texts:
            rows.append({"text": value})
        else:
            return None
    return rows


def _divided(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of columns; a mapping that is a single row already is returned as it is."""
    values = {str(name): simple(value) for name, value in columns.items()}
    wide = {n: v for n, v in values.items() if isinstance(v, list)}
    ids = values.get("input_ids")
    flat = isinstance(ids, list) and not any(isinstance(one, list) for one in ids)
    if not wide or flat or (ids is None and not any(map(_has_texts, wide.values()))):
        return [values]
    if len({len(column) for column in wide.values()}) > 1 or len(wide) < len(values):
        sizes = ", ".join(f"{n}: {len(v) if n in wide else 'one value'}" for n, v in values.items())
        raise AtlasError(
            "the columns of the data do not have the same number of rows",
            why=sizes,
            remedy="give every column a value for each row",
        )
    number = len(next(iter(wide.values())))
    return [{name: column[row] for name, column in wide.items()} for row in range(number)]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _has_texts(column: list[Any]) -> bool:
    return any(map(_is_text, column))


def simple(value: Any) -> Any:
    """A value as Python lists and numbers; takes arrays, tensors, tuples and NumPy numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "detach"):
        return value.detach().cpu().tolist()
    if isinstance(value, Mapping):
        return {str(name): simple(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [simple(one) if not isinstance(one, int | str) else one for one in value]
    return value


def array_of(value: Any) -> np.ndarray:
    """An array, a tensor or a list as an array.

    Floats of types that NumPy does not have (bfloat16, float8) become float32, which has them all.
    """
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    known = not tensor.is_floating_point() or hasattr(np, str(tensor.dtype).rpartition(".")[2])
    return np.asarray(tensor if known else tensor.float())
