"""Mutations of zip archives, of numpy's arrays in them, and of safetensors files."""

from __future__ import annotations

import ast
import io
import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

from tests.fuzz import mutate_json

Mutator = Callable[[Random, bytes, bytes], bytes]
Entries = list[tuple[str, bytes]]

NAMES = (
    "../escaped.npy", "/etc/passwd", "a/../../b.npy", "", ".", "x" * 300, "a\x00b.npy",
    "\x1b[2J.npy", "pixel_values.npy", "extra.npy", "facts.npy", "data.pkl", "labels.npy",
    "é.npy", "a\\b.npy",
)  # fmt: skip
SHAPES: tuple[Any, ...] = (
    (), (0,), (1,), (-1,), (2**31,), (2**40,), (2**62, 4), (10**19,), (2**63, 2), (1,) * 33,
    (1,) * 70, (1.5,), ("a",), None, 7, (True, 2), (3, 0, 5),
)  # fmt: skip
DTYPES = (
    "|O", "<f4", ">f8", "<f2", "<c16", "|S9", "<U4", "|V8", "<M8[s]", "|b1", "<i8", "<u8", "|S0",
    "<U0", "x", [("a", "<f8")], [("a", "|O")], "<f8,<f8", "", "<U2147483647", 5, "|i1", "<f16",
)  # fmt: skip
BOMB_MEGABYTES = 1100


def npy(rng: Random, data: bytes, other: bytes) -> bytes:
    """An array of numpy with another header; a text that it holds is changed as JSON."""
    try:
        size = struct.unpack("<H", data[8:10])[0]
        header, body = ast.literal_eval(data[10 : 10 + size].decode("latin1")), data[10 + size :]
    except (ValueError, SyntaxError, struct.error, RecursionError, MemoryError):
        return data[: rng.randint(0, len(data))]
    if "U" in str(header.get("descr")) and rng.random() < 0.6:
        text = body.decode("utf-32-le", "replace").rstrip("\x00").encode("utf-8", "replace")
        new = mutate_json.document(rng, text, text).decode("utf-8", "replace")
        return npy_bytes({**header, "descr": f"<U{len(new)}"}, new.encode("utf-32-le", "replace"))
    match rng.randrange(7):
        case 0 | 1:
            header["shape"] = rng.choice((*SHAPES, _near_shape(rng, header.get("shape"))))
        case 2:
            header["descr"] = rng.choice(DTYPES)
        case 3:
            header["fortran_order"] = rng.choice((True, 2, None, "x"))
        case 4:
            header.pop(rng.choice(sorted(header)), None)
        case 5:
            header[rng.choice(("extra", "shape "))] = rng.choice((1, "[" * 50))
        case 6:
            floats = struct.pack("<d", rng.choice((float("nan"), float("inf"), 1e308, -1e30, 0.0)))
            at = rng.randrange(max(len(body) - 8, 1))
            body = body[:at] + floats + body[at + 8 :]
    return npy_bytes(header, body, rng.choice((1, 1, 1, 2, 3, 9)))


def npy_bytes(header: Any, body: bytes, version: int = 1) -> bytes:
    """An array file with a header of one's own."""
    text = (repr(header) + "\n").encode("latin1", "replace")
    length = struct.pack("<H" if version == 1 else "<I", min(len(text), 65535))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text + body


def zipped(by_name: Callable[[str], Mutator]) -> Mutator:
    """A mutator of zip archives: of their entries by name, their names, and their headers."""

    def mutate(rng: Random, data: bytes, other: bytes) -> bytes:
        try:
            entries = list(_entries(data))
        except (
            zipfile.BadZipFile,
            ValueError,
            NotImplementedError,
            RuntimeError,
            OSError,
            zlib.error,
        ):
            return headers(rng, data, other)
        if not entries or rng.random() < 0.3:
            return headers(rng, data, other)
        at = rng.randrange(len(entries))
        name, content = entries[at]
        match rng.randrange(8):
            case 0:
                entries[at] = rng.choice(NAMES), content
            case 1:
                entries.append((rng.choice((name, *NAMES)), content))
            case 2:
                del entries[at]
            case 3:
                entries[at] = name, entries[rng.randrange(len(entries))][1]
            case _:
                entries[at] = name, by_name(name)(rng, content, content) if content else b"\x00"
        method = rng.choice((zipfile.ZIP_STORED,) * 4 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
        return archive(entries, method)

    return mutate


def archive(entries: Entries, method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip archive; names may be there twice, and anything else that zipfile writes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as file:
        warnings.simplefilter("ignore")  # a name that is there twice
        for name, content in entries:
            file.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()


def headers(rng: Random, data: bytes, other: bytes) -> bytes:
    """Change a field of one of the zip's headers: local, of the directory, or of its end."""
    marks = [at for mark in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for at in _found(data, mark)]
    if not marks:
        return data[: rng.randint(0, len(data))]
    at = rng.choice(marks) + rng.randrange(4, 46)
    size = rng.choice((1, 2, 4))
    value = rng.choice((0, 1, 8, 12, 99, 0xFF, 0xFFFF, 0xFFFFFFFF, rng.getrandbits(32)))
    return data[:at] + value.to_bytes(4, "little")[:size] + data[at + size :]


def safetensors(rng: Random, data: bytes, other: bytes) -> bytes:
    """A safetensors file with another header, or another length of it."""
    try:
        size = struct.unpack("<Q", data[:8])[0]
        header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    except (ValueError, struct.error, RecursionError):
        return data[: rng.randint(0, len(data))]
    if rng.random() < 0.15:
        length = rng.choice((0, 1, size - 1, size + 1, 2**27, 100_000_001, 2**40, 2**63, 2**64 - 1))
        return struct.pack("<Q", length) + data[8:]
    tensors = [name for name in header if isinstance(header[name], dict)]
    if tensors and rng.random() < 0.6:
        entry = dict(header[rng.choice(tensors)])
        match rng.randrange(3):
            case 0:
                entry["dtype"] = rng.choice(
                    ("F32", "F64", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "X")
                )
            case 1:
                entry["shape"] = mutate_json.change(rng, entry.get("shape", []))
            case 2:
                entry["data_offsets"] = mutate_json.change(rng, entry.get("data_offsets", []))
        text = mutate_json.dumped({**header, rng.choice(tensors): entry})
    else:
        text = mutate_json.document(rng, data[8 : 8 + size], other)
    return struct.pack("<Q", len(text)) + text + body


@lru_cache(maxsize=2)
def zeros_npz(name: str, megabytes: int = BOMB_MEGABYTES) -> bytes:
    """An .npz of a few megabytes or less with one array of so many zeros (float64)."""
    head = npy_bytes({"descr": "<f8", "fortran_order": False, "shape": (megabytes * 131072,)}, b"")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    check = zlib.crc32(head)
    for _ in range(megabytes):
        check = zlib.crc32(bytes(1 << 20), check)
    body = first + block * megabytes + packer.flush()
    raw, entry = len(head) + (megabytes << 20), f"{name}.npy".encode()
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, check, len(body), raw, len(entry), 0)
    local = b"PK\3\4" + fields + entry
    directory = b"PK\1\2" + struct.pack("<H", 20) + fields + bytes(14) + entry
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), len(local) + len(body), 0)
    return local + body + directory + b"PK\5\6" + end


def _near_shape(rng: Random, shape: Any) -> Any:
    if not isinstance(shape, tuple) or not shape:
        return (1,)
    return rng.choice((shape[::-1], shape[1:], (*shape, 1), (shape[0] + 1, *shape[1:])))


@lru_cache(maxsize=128)
def _entries(data: bytes) -> tuple[tuple[str, bytes], ...]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        if sum(info.file_size for info in file.infolist()) > 1 << 26:
            raise ValueError("a bomb")
        return tuple((info.filename, file.read(info)) for info in file.infolist())


def _found(data: bytes, mark: bytes) -> list[int]:
    places, at = [], data.find(mark)
    while at >= 0:
        places.append(at)
        at = data.find(mark, at + 1)
    return places
