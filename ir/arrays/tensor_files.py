"""Files of arrays in the form of safetensors, read and written one array at a time.

A file is larger than the memory where the model is. So a large array is read from the file whenever
its numbers are needed, and it is written without the others. The file stays open: it may be moved
or deleted, and a file of the same name may take its place. A change of its content is noticed.
"""

from __future__ import annotations

import json
import math
import os
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from atlasc.ir.arrays.lazy import LazyArray, is_large
from atlasc.ir.bounds import MAX_AXES
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MAX_HEADER, MAX_WEIGHTS, is_printable, open_plain

TYPES = {
    "U64": np.uint64, "I64": np.int64, "F64": np.float64, "F32": np.float32, "U32": np.uint32,
    "I32": np.int32, "F16": np.float16, "U16": np.uint16, "I16": np.int16, "I8": np.int8,
    "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
"""safetensors' names of types, in the order in which a file has its arrays."""


class TensorFile:
    """An open file of arrays, whose header was checked.

    Attributes:
        path: where it was opened.
        entries: array name -> (safetensors' name of its type, shape, offset of its first byte).
        metadata: facts of the file by name.

    Raises:
        AtlasError: the file cannot be read, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        self.path, invalid = path, f"{path} is not a valid safetensors file"
        with open_plain(path, MAX_WEIGHTS) as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_HEADER:
                raise AtlasError(invalid, why="its header is too large")
            with explained(invalid, remedy="copy the file again, or make it again"):
                with safe_open(path, framework="np"):
                    pass  # checks the header, and that the file is as long as it says
                header: dict[str, Any] = json.loads(file.read(length))
                self.metadata: dict[str, str] = header.pop("__metadata__", {})
                self.entries = {
                    name: (one["dtype"], tuple(one["shape"]), 8 + length + one["data_offsets"][0])
                    for name, one in header.items()
                }
            if not all(map(is_printable, self.entries)):
                raise AtlasError(invalid, why="a name in it has control characters")
            for name, (_, shape, _) in self.entries.items():
                if len(shape) > MAX_AXES:
                    why = f"the array has {len(shape)} axes, and {MAX_AXES} are allowed"
                    raise AtlasError(invalid, where=name, why=why)
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)
        self._state = self._now()

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def require_unchanged(self) -> None:
        """Raise AtlasError if the content of the file was changed since it was opened."""
        if self._now() != self._state:
            raise AtlasError(
                f"{self.path} was changed while it was in use",
                why="large arrays are read from their file whenever they are needed",
                remedy="leave the files of a model alone while it is used, and start again; to "
                "replace a file, write the new one elsewhere and move it to its place",
            )

    def read(self, dtype: Any, shape: tuple[int, ...], offset: int) -> np.ndarray:
        """The numbers of an array, or of some of its rows.

        Raises:
            AtlasError: the file was changed.
        """
        found = np.empty(shape, dtype)
        left = memoryview(cast(Any, found.reshape(-1).view(np.uint8)))
        while left:
            count = os.preadv(self.descriptor, [left], offset)
            if not count:
                break
            left, offset = left[count:], offset + count
        self.require_unchanged()
        return found

    def _rows(self, dtype: Any, shape: tuple[int, ...], offset: int, rows: np.ndarray) -> Any:
        """``array[rows]`` for an array of integers, without reading other rows."""
        size = math.prod(shape[1:]) * np.dtype(dtype).itemsize
        found = np.empty((*rows.shape, *shape[1:]), dtype)
        for at in np.ndindex(rows.shape):
            found[at] = self.read(dtype, shape[1:], offset + size * (int(rows[at]) % shape[0]))
        return found

    def array(self, name: str) -> np.ndarray:
        """An array by name: a large one is read from the file at each use.

        Raises:
            AtlasError: NumPy lacks its type.
        """
        kind, shape, offset = self.entries[name]
        if kind not in TYPES:
            raise AtlasError(
                f"{self.path} is not a valid safetensors file",
                where=name,
                why=f"NumPy has no numbers of type {kind}",
                remedy="make the file again, with floats of 32 bits",
            )
        place = np.dtype(TYPES[kind]), shape, offset
        if not is_large(shape, place[0]):
            return self.read(*place)
        found = LazyArray(shape, place[0], partial(self.read, *place), partial(self._rows, *place))
        return cast(np.ndarray, found)


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file; the large ones are read at each use.

    Raises AtlasError if the file cannot be read, is damaged, or holds types that NumPy lacks.
    """
    file = TensorFile(path)
    return {name: file.array(name) for name in file.entries}


def write_safetensors(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a file of arrays as safetensors' ``save_file`` does, byte for byte, with one array in
    memory at a time.
    """
    names = {np.dtype(dtype): name for name, dtype in TYPES.items()}
    order = list(names)
    listed = sorted(arrays.items(), key=lambda one: (order.index(one[1].dtype), one[0].encode()))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, array in listed:
        begin, end = end, end + array.nbytes
        kind, extents = names[array.dtype], list(array.shape)
        header[name] = {"dtype": kind, "shape": extents, "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in listed:
            file.write(
                memoryview(cast(Any, np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
            )
