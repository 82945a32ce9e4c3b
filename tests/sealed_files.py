"""Sealed files, written and read by other code than that of the runtime library: an oracle, and a
forger.

The array ``~sha256`` holds the SHA-256 of the header, and then of every other array in the order of
their names. It tells a damaged file from a whole one, and protects from nobody who makes files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from atlasc.ir.files import MIB, Count, Schema, parse_json

SEAL, METADATA = "~sha256", "__metadata__"
_DIGEST = hashlib.sha256().digest_size
_LENGTH = 8
"""Bytes of the header's length."""


class Entry(Schema):
    """An array in the header."""

    dtype: Literal["U8", "F64"]
    shape: Annotated[list[Count], Field(max_length=8)]
    data_offsets: Annotated[list[Count], Field(min_length=2, max_length=2)]


@dataclass(frozen=True)
class Array:
    """Bytes of an array, little-endian, and what they are."""

    dtype: Literal["U8", "F64"]
    shape: tuple[int, ...]
    data: bytes


def sealed(metadata: Mapping[str, str], arrays: Mapping[str, Array]) -> bytes:
    """The content of a file."""
    seal = Array("U8", (_DIGEST * (len(arrays) + 1),), bytes(_DIGEST * (len(arrays) + 1)))
    header: dict[str, object] = {METADATA: dict(metadata)}
    at, ordered = 0, [*sorted(arrays.items()), (SEAL, seal)]
    for name, array in ordered:
        end = at + len(array.data)
        header[name] = {
            "dtype": array.dtype, "shape": list(array.shape), "data_offsets": [at, end],
        }  # fmt: skip
        at = end
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    parts = [text, *(array.data for _, array in ordered[:-1])]
    digests = [hashlib.sha256(part).digest() for part in parts]
    return b"".join([len(text).to_bytes(_LENGTH, "little"), *parts, *digests])


def opened(content: bytes) -> tuple[dict[str, str], dict[str, Array]]:
    """Metadata and arrays of a file.

    Raises:
        ValueError: it is no sealed file, or damaged.
    """
    length = int.from_bytes(content[:_LENGTH], "little")
    text, data = content[_LENGTH : _LENGTH + length], content[_LENGTH + length :]
    if len(content) < _LENGTH or len(text) < length or length > MIB:
        raise ValueError("it is no safetensors file, or it is truncated")
    header = parse_json(text, dict[str, Entry | dict[str, str]])
    metadata = header.pop(METADATA, {})
    entries = {name: entry for name, entry in header.items() if isinstance(entry, Entry)}
    if isinstance(metadata, Entry) or len(entries) < len(header):
        raise ValueError("its header has something else than arrays")
    arrays, covered = {}, 0
    for name, entry in sorted(entries.items(), key=lambda pair: pair[1].data_offsets):
        first, last = entry.data_offsets
        size = 8 if entry.dtype == "F64" else 1
        for extent in entry.shape:
            size = min(size * extent, 2**63)
        if first != covered or last > len(data) or size != last - first:
            raise ValueError("its arrays overlap, leave gaps, or have not the size of their shape")
        arrays[name] = Array(entry.dtype, tuple(entry.shape), data[first:last])
        covered = last
    seal = arrays.pop(SEAL, None)
    if covered != len(data) or seal is None or len(seal.data) != _DIGEST * (len(arrays) + 1):
        raise ValueError("its checksums are not as many as its arrays")
    parts = [("its header", text), *((name, arrays[name].data) for name in sorted(arrays))]
    for number, (name, part) in enumerate(parts):
        digest = seal.data[number * _DIGEST : (number + 1) * _DIGEST]
        if hashlib.sha256(part).digest() != digest:
            raise ValueError(f"{name} does not match its checksum")
    return metadata, arrays
