"""Reads arrays from untrusted ``.npz`` and safetensors files.

A small file can claim to hold, or expand to, more than a machine's memory. The claimed sizes are
checked before memory is allocated.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files.plain import GIB, MIB, open_plain, too_large

MAX_ARRAYS = 1 << 16
"""Of one file."""
MAX_HEADER = 64 * MIB
"""Bytes that describe the arrays of a safetensors file."""
MAX_WEIGHTS = 1024 * GIB
"""Bytes of a safetensors file, which takes no more memory than it has."""
UNPACKED, MIN_UNPACKED = 50, 64 * MIB
"""What a compressed file may expand to: so many times its size, and so many bytes in any case."""
_KINDS = "biufcU"
"""Kinds of NumPy types that are read: no objects, no records."""
_SUFFIX = ".npy"


def read_npz(path: Path, limit: int, *, what: str, links: bool = True) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz``.

    Args:
        path: the file.
        limit: largest size of the file and of its arrays in bytes. A file that expands more than
            ``UNPACKED`` times is refused earlier.
        what: what the file is, for messages: "data".
        links: see :func:`atlasc.ir.files.plain.open_plain`.

    Raises:
        AtlasError: it cannot be read, is damaged, or holds anything but plain arrays.
    """
    remedy = "write it with numpy.savez(path, name=array)"
    with (
        explained(f"{what} {path} cannot be read as an .npz of plain arrays", remedy=remedy),
        open_plain(path, limit, links=links) as file,
        zipfile.ZipFile(file) as archive,
    ):
        members = archive.infolist()
        names = [member.filename.removesuffix(_SUFFIX) for member in members]
        if len(set(names)) < len(names) or len(names) > MAX_ARRAYS:
            raise ValueError("it has arrays of one name, or too many")
        size = sum(member.file_size for member in members)
        limit = min(limit, UNPACKED * os.fstat(file.fileno()).st_size + MIN_UNPACKED)
        if size > limit:
            raise too_large(path, size, limit)
        return {name: _array(archive, member) for name, member in zip(names, members, strict=True)}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    from numpy.lib import format as npy

    if not member.filename.endswith(_SUFFIX) or not printable_name(member.filename):
        raise ValueError("it holds a file that is no array")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is packed in a way that NumPy does not write")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        shape, _, dtype = read_header[version](file)
        if dtype.kind not in _KINDS or not dtype.itemsize:
            raise ValueError(f"{member.filename} holds {dtype}, not numbers")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or not file.tell() + size == member.file_size:
            raise ValueError(f"{member.filename} has not the size of its shape {shape}")
        file.seek(0)  # zipfile expands no more than file_size bytes, whatever follows
        return npy.read_array(file).astype(dtype.newbyteorder("="), copy=False)


def printable_name(name: str) -> bool:
    """Whether a name of an array may be shown and printed."""
    return name.isprintable() and 0 < len(name) <= 1000


def read_safetensors(path: Path, *, links: bool = True) -> dict[str, np.ndarray]:
    """All arrays of a safetensors file.

    Raises:
        AtlasError: it cannot be read, is damaged, or holds types that NumPy lacks.
    """
    from safetensors.numpy import load_file

    invalid = f"{path} is not a valid safetensors file"
    with open_plain(path, MAX_WEIGHTS, links=links) as file:
        if int.from_bytes(file.read(8), "little") > MAX_HEADER:
            raise AtlasError(invalid, why="its header is too large")
        with explained(invalid, remedy="copy it again, or make it again"):
            arrays = load_file(path)
    if not all(map(printable_name, arrays)):
        raise AtlasError(invalid, why="a name has control codes")
    return arrays


def arrays_digest(arrays: Mapping[str, np.ndarray], head: str = "") -> str:
    """SHA-256 (hex) of a text and of arrays: names, types, shapes and values."""
    digest = hashlib.sha256(head.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
