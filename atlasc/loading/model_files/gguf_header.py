"""The header of a `.gguf` file: its settings and its table of tensors, read with limits.

The readers of transformers and of the package gguf believe what a file says of itself: a damaged
file can keep them busy for ever. This module reads the header first, and refuses a file whose
header or tensors do not lie inside of it. The format: docs/gguf.md in ggml's repository.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MAX_ARRAYS, MAX_WEIGHTS, open_plain

MAGIC, VERSIONS = b"GGUF", (2, 3)
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Number of a type of settings -> its format in ``struct``."""
STRING, ARRAY = 8, 9
MAX_SETTINGS, MAX_ELEMENTS, MAX_AXES = 1 << 12, 1 << 23, 4
MAX_TEXT = 1 << 24
"""Greatest number of bytes of a text; a chat template has thousands."""
ALIGNMENT = 32
Setting: TypeAlias = bool | int | float | str | list[Any]


@dataclass(frozen=True)
class Header:
    """What a file says of itself.

    Attributes:
        settings: name -> value; of an array of texts, such as a vocabulary, the empty list.
        tensors: name -> shape, the first axis innermost.
        types: names of the types of the tensors: F32, Q4_1, ...
    """

    settings: dict[str, Setting]
    tensors: dict[str, tuple[int, ...]]
    types: frozenset[str]

    @property
    def architecture(self) -> str:
        """The name that llama.cpp gives to the architecture."""
        return str(self.settings["general.architecture"])

    @property
    def numbers(self) -> int:
        """Numbers of all tensors together."""
        return sum(map(math.prod, self.tensors.values()))


def read_header(path: Path) -> Header:
    """The header of a file; needs the package gguf, for the sizes of quantised blocks.

    Raises:
        AtlasError: the file is missing, no `.gguf`, or damaged.
    """
    with open_plain(path, MAX_WEIGHTS) as file:
        what = f"{path.name} is no .gguf file, or is damaged"
        with (
            explained(what, path, "copy or download the file again"),
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return _Reader(content).header()


class _Reader:
    """Reads from front to back. Every size is checked before it is used; errors are ValueErrors and
    struct.errors.
    """

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.at, self.elements = content, 0, 0

    def header(self) -> Header:
        if self.content[:4] != MAGIC:
            raise ValueError("its first bytes are not GGUF")
        self.at = 4
        version = self.number("I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}; versions 2 and 3 are read, little-endian")
        tensors, settings = self.count(MAX_ARRAYS), self.count(MAX_SETTINGS)
        found: dict[str, Setting] = {}
        for _ in range(settings):
            name = self.text()
            if name in found:
                raise ValueError(f"it has the setting {name} twice")
            found[name] = self.value(self.number("I"))
        if not isinstance(found.get("general.architecture"), str):
            raise ValueError("it names no general.architecture")
        return self.with_tensors(tensors, found)

    def with_tensors(self, count: int, settings: dict[str, Setting]) -> Header:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        shapes: dict[str, tuple[int, ...]] = {}
        ends, types = [], set()
        for _ in range(count):
            name, axes = self.text(), self.number("I")
            if name in shapes or not 1 <= axes <= MAX_AXES:
                raise ValueError(f"the tensor {name} occurs twice, or has {axes} axes")
            shapes[name] = tuple(self.count(1 << 40) for _ in range(axes))
            kind, offset = GGMLQuantizationType(self.number("I")), self.number("Q")
            block, size = GGML_QUANT_SIZES[kind]
            if shapes[name][0] % block:
                raise ValueError(f"the rows of {name} are no whole blocks of {kind.name}")
            ends.append(offset + math.prod(shapes[name]) // block * size)
            types.add(kind.name)
        alignment = settings.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise ValueError(f"its alignment is {alignment}")
        start = -(-self.at // alignment) * alignment
        if start + max(ends, default=0) > len(self.content):
            raise ValueError("its tensors reach beyond its end")
        return Header(settings, shapes, frozenset(types))

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self.content, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def count(self, most: int) -> int:
        value: int = self.number("Q")
        if value > most:
            raise ValueError(f"it says that something has {value} parts; at most {most} are read")
        return value

    def text(self) -> str:
        size = self.count(MAX_TEXT)
        self.at += size
        if self.at > len(self.content):
            raise ValueError("a text reaches beyond its end")
        return self.content[self.at - size : self.at].decode("utf-8")

    def value(self, kind: int) -> Setting:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            found: Setting = self.number(NUMBERS[kind])
            return found
        of, length = self.number("I"), self.count(MAX_ELEMENTS)
        self.elements += length
        if self.elements > MAX_ELEMENTS:
            raise ValueError(f"its arrays have more than {MAX_ELEMENTS} elements")
        if of == STRING:
            for _ in range(length):
                self.text()
            return []
        return [self.number(NUMBERS[of]) for _ in range(length)]


def not_whole(path: Path, header: Header) -> AtlasError | None:
    """The error for a part of a model in several files; None for a whole one."""
    parts = header.settings.get("split.count", 1)
    if parts in (0, 1):
        return None
    return AtlasError(
        f"{path.name} is one of {parts} parts of a model",
        where=str(path),
        why="transformers reads a .gguf only from one file",
        remedy="join the parts with llama.cpp: llama-gguf-split --merge FIRST-PART model.gguf",
    )
