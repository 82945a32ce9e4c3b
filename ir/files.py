"""Files that may come from somebody else, read with limits.

Every file that atlasc reads goes through :func:`open_plain`. It refuses devices, pipes and folders
before it reads anything from them, and files that are larger than the limit of their kind.

A small file of arrays can claim to hold, or expand to, more than a machine's memory. The claimed
sizes are checked before memory is allocated.

JSON is read with a declared schema, a subclass of :class:`Schema`: pydantic checks types, bounds
and names, and refuses unknown members. Duplicate members, numbers that are not finite, and
unlimited integers and nesting are refused too, although JSON allows them.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from atlasc.ir.errors import AtlasError, explained

KIB, MIB, GIB = 2**10, 2**20, 2**30
MAX_ARRAYS = 1 << 16
"""Greatest number of arrays in one file."""
MAX_HEADER = 64 * MIB
"""Greatest size in bytes of the header of a safetensors file."""
MAX_WEIGHTS = 1024 * GIB
"""Greatest size in bytes of a safetensors file, which takes no more memory than its size."""
UNPACKED, MIN_UNPACKED = 50, 64 * MIB
"""Greatest expansion of a compressed file: this many times its size, or this many bytes if more."""
_KINDS = "biufcU"
"""Kinds of NumPy types that are read: no objects, no records."""
_SUFFIX = ".npy"

Read = TypeVar("Read")
STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
"""The ``__pydantic_config__`` of a dataclass that is also a schema."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A digest in hexadecimal."""
LARGEST_COUNT = 2**53
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
"""An integer that a JSON number represents exactly."""
Amount = Annotated[float, Field(ge=0)]


class Schema(BaseModel):
    """The form of a JSON object: exactly these members, of exactly these types."""

    model_config = STRICT


def open_plain(path: Path, limit: int, *, links: bool = True) -> BinaryIO:
    """Open a plain file for reading.

    Args:
        path: path of the file.
        limit: greatest size in bytes of a file of its kind.
        links: whether ``path`` may be a symbolic link. A path that the user typed may; a path
            inside a folder from somebody else may not.

    Raises:
        AtlasError: the file is missing, cannot be read, is no plain file, or is too large.
    """
    # O_NONBLOCK: opening a pipe must not block. Plain files are not affected.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if path.is_symlink():
            reason = "the path is a link, and links are not followed here"
        raise AtlasError(f"{path} cannot be read", why=reason) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise AtlasError(f"{path} is not a plain file", remedy="give a file, not a device")
        if status.st_size > limit:
            raise too_large(path, status.st_size, limit)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, limit: int, *, links: bool = True) -> bytes:
    """The content of a plain file; arguments and errors as for :func:`open_plain`."""
    with open_plain(path, limit, links=links) as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # files of /proc report a size of 0
        raise too_large(path, len(content), limit)
    return content


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a plain file that is no link; errors as for :func:`open_plain`."""
    state = hashlib.sha256()
    with open_plain(path, 2**63, links=False) as file:
        while block := file.read(MIB):
            state.update(block)
    return state.hexdigest()


def read_text(path: Path, limit: int, *, links: bool = True) -> str:
    """The content of a plain UTF-8 file, without a byte order mark; errors as for
    :func:`open_plain`.
    """
    content = read_bytes(path, limit, links=links)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise AtlasError(
            f"{path} is not UTF-8 text",
            where=f"line {line}",
            why=str(error),
            remedy="write the file in UTF-8: iconv -f ENCODING -t UTF-8 FILE",
        ) from None


def require_private(path: Path) -> None:
    """Refuse a file with a secret that is missing, a link, another user's, or accessible to group
    or others.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise AtlasError(f"{path} cannot be read", why=error.strerror or str(error)) from None
    if stat.S_ISLNK(status.st_mode):
        raise AtlasError(f"{path} is a link", remedy="give the folder that contains the keys")
    if status.st_uid != os.geteuid():
        raise AtlasError(
            f"{path} belongs to another user",
            why="a secret protects only if nobody else has it",
            remedy="use keys that you made yourself with atlasc keygen",
        )
    if loose := stat.S_IMODE(status.st_mode) & 0o077:
        raise AtlasError(
            f"{path} is open to other users of this machine",
            why=f"its mode is {stat.S_IMODE(status.st_mode):04o}, of which {loose:04o} is too much",
            remedy=f"if nobody else has read it: chmod go= {path}; otherwise make new keys",
        )


def too_large(path: Path, size: int, limit: int) -> AtlasError:
    """The error for a file that is too large, or expands too much."""
    return AtlasError(
        f"{path} is too large",
        why=f"the file has {size} bytes; the limit for its kind is {limit}",
        remedy="check that this is the right file",
    )


def read_npz(
    path: Path,
    limit: int,
    *,
    what: str,
    remedy: str = "write the file with numpy.savez(path, name=array)",
) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz``.

    Args:
        path: path of the file.
        limit: greatest size in bytes of the file and of its arrays. A file that expands more than
            ``UNPACKED`` times is refused earlier.
        what, remedy: name of the file, and what to do, for messages.

    Raises:
        AtlasError: the file cannot be read, is damaged, or holds anything but plain arrays.
    """
    with (
        explained(f"{what} {path} cannot be read as an .npz of plain arrays", remedy=remedy),
        open_plain(path, limit) as file,
        zipfile.ZipFile(file) as archive,
    ):
        members = archive.infolist()
        names = [member.filename.removesuffix(_SUFFIX) for member in members]
        if len(set(names)) < len(names) or len(names) > MAX_ARRAYS:
            raise ValueError("the file has two arrays of one name, or too many arrays")
        size = sum(member.file_size for member in members)
        limit = min(limit, UNPACKED * os.fstat(file.fileno()).st_size + MIN_UNPACKED)
        if size > limit:
            raise too_large(path, size, limit)
        return {name: _array(archive, member) for name, member in zip(names, members, strict=True)}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    from numpy.lib import format as npy

    if not member.filename.endswith(_SUFFIX) or not is_printable(member.filename):
        raise ValueError("the file holds a member that is no array")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("the file is compressed in a way that NumPy does not write")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        shape, _, dtype = read_header[version](file)
        if dtype.kind not in _KINDS or not dtype.itemsize:
            raise ValueError(f"{member.filename} holds {dtype}, not numbers")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or not file.tell() + size == member.file_size:
            raise ValueError(f"{member.filename} does not have the size of its shape {shape}")
        file.seek(0)  # zipfile expands no more than file_size bytes, whatever follows
        return npy.read_array(file).astype(dtype.newbyteorder("="), copy=False)


def is_printable(name: str) -> bool:
    """Whether a name of an array has no control characters, and is not too long."""
    return name.isprintable() and 0 < len(name) <= 1000


def arrays_digest(arrays: Mapping[str, np.ndarray], head: str = "") -> str:
    """SHA-256 (hex) of a text and of arrays: names, types, shapes and values."""
    digest = hashlib.sha256(head.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def read_json(
    path: Path,
    schema: type[Read],
    what: str,
    limit: int,
    *,
    values: int | None = None,
    remedy: str = "",
    links: bool = True,
) -> Read:
    """The content of a JSON file; ``limit`` and ``links`` as :func:`open_plain`, ``values`` as
    :func:`parse_json`.

    Args:
        path: path of the file.
        schema: a :class:`Schema`, or another type that pydantic knows.
        what: name of the file for messages, such as "the front".
        remedy: remedy of the error.

    Raises:
        AtlasError: the file cannot be read, or does not match the schema.
    """
    try:
        return parse_json(read_bytes(path, limit, links=links), schema, values)
    except ValueError as error:
        raise AtlasError(f"{what} {path} cannot be read", why=str(error), remedy=remedy) from None


def parse_json(text: str | bytes, schema: type[Read], values: int | None = None) -> Read:
    """The value of a JSON text; a ValueError of one line if the text does not match the schema.

    Args:
        values: most values of a text that others wrote. What is wrong with each takes up to two KiB
            until all were read, so that a text of 16 MiB could take 10 GiB.
    """
    if values is not None and _has_more(text, values):
        raise ValueError(f"it has more than {values:,} values")
    try:
        value: Read = _adapter(schema).validate_json(text)
        json.loads(text, object_pairs_hook=_unique, parse_constant=_number, parse_float=_number)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        first = next((one for one in errors if one["loc"] == ("format",)), errors[0])
        if first["type"] == "literal_error" and first["loc"] == ("format",):
            wanted = first["ctx"]["expected"].strip("'")
            raise ValueError(
                f"its format is {str(first['input'])[:20]}, but this version reads format {wanted}"
            ) from None
        place = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        raise ValueError(f"{place}{first['msg']}") from None
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None
    return value


def whole_number(text: str) -> int | None:
    """The number that a header or an address states: ASCII digits and nothing else, or None.
    Whatever is larger counts as ``LARGEST_COUNT``, which is beyond every limit.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0")[:17]  # so many exceed it; Python refuses some thousands
    return min(int(digits or "0"), LARGEST_COUNT)


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every value of a JSON tree that is neither object nor array, with the name of its member.

    Names of members are yielded too, under an empty name.
    """
    left = [("", tree)]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += (*value.items(), *(("", key) for key in value))
        elif isinstance(value, list):
            left += ((name, item) for item in value)
        else:
            yield name, value


_TOKEN = re.compile(rb'[,\[{]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""What begins a value or a member of JSON, or a string; one without an end as well, so that it is
looked at once."""


def _has_more(text: str | bytes, values: int) -> bool:
    """Whether a JSON text has more values; those are not made to find out."""
    content = text.encode() if isinstance(text, str) else text
    if sum(map(content.count, (b",", b"[", b"{"))) <= values:
        return False
    seen = found = 0
    for token in islice(_TOKEN.finditer(content), 3 * values + 1):  # a member has two strings
        seen += 1
        found += content[token.start()] != 0x22
    return found > values or seen > 3 * values


def _reader(schema: Any) -> TypeAdapter[Any]:
    """What reads a schema; of a list up to the first item that is wrong."""
    many = get_origin(schema) in (list, tuple)
    return TypeAdapter(Annotated[schema, FailFast()] if many else schema)


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(_reader)
"""Cached, because making an adapter takes time."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is given twice")
    return members


def _number(text: str) -> float:
    if text in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(f"{text} is not a JSON number")
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value
