"""Folders of keys: who may read them, and how an incomplete or a wrong one is recognised."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import Schema, Sha256, read_json
from atlasc.ir.files.plain import GIB, MIB, open_plain, require_private, sha256_of
from atlasc.targets.desilo.parameters import DesiloParameters

INDEX = "keys.json"
FORMAT = 1
LARGEST = 64 * GIB
"""Bytes of a key; a bootstrap's has 14 GiB."""
_Level = Annotated[int, Field(ge=0, le=1000)]
_KeyName = Annotated[str, Field(pattern=r"^[a-z]+(_[0-9]{1,9})?\.key$")]
_Amount = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")]


def new_folder(folder: Path) -> None:
    """Create a folder for keys, for its owner alone; refuse one that holds keys already."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.glob("*.key")) or (folder / INDEX).exists():
        raise AtlasError(
            "this folder already holds keys",
            where=str(folder),
            why="overwriting a secret key would make every ciphertext made with it unreadable",
            remedy="choose another folder or delete this one",
        )
    folder.chmod(0o700)


def create(path: Path) -> Any:
    """A new file that only its owner may read, open for writing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a new file that only its owner may read."""
    with create(path) as file:
        file.write(data)


def require_size(path: Path, expected: int) -> None:
    """Refuse a key that the library could not write to its end: it does not say so itself.

    Args:
        path: the key.
        expected: bytes, to one in a hundred.

    Raises:
        AtlasError: the file is smaller.
    """
    size = path.stat().st_size
    if size < 0.99 * expected:
        raise AtlasError(
            f"the key {path.name} cannot be written",
            where=str(path),
            why=f"{size} bytes of {expected} were written: the disk is full, or files may not "
            "be so large",
            remedy="make room on the disk, and run the command again",
        )


def write_index(
    folder: Path, role: str, parameters: DesiloParameters, identity: str, plan: dict[str, Any]
) -> None:
    """Write ``keys.json``; the last step, because it makes the folder count as complete."""
    index = {
        "format": FORMAT,
        "role": role,
        "identity": identity,
        "parameters": parameters.to_dict(),
        "security_bits": parameters.security_bits,
        **plan,
    }
    write_bytes(folder / INDEX, (json.dumps(index, indent=1) + "\n").encode())


class _Index(Schema):
    """``keys.json``; a client's has no plan of keys."""

    format: Literal[1]
    role: Literal["client", "server"]
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    parameters: dict[str, JsonValue]
    security_bits: Annotated[int, Field(ge=0, le=1024)]
    rotations: dict[_Amount, _Level] = Field(default_factory=dict)
    relinearization_level: _Level | None = None
    conjugation_level: _Level | None = None
    files: dict[_KeyName, Sha256] = Field(default_factory=dict)


def read_index(folder: Path, role: str) -> tuple[DesiloParameters, str, dict[str, Any]]:
    """Parameters, identity and the whole index of a folder of keys of the given role.

    Raises:
        AtlasError: the folder is incomplete, damaged, or holds the keys of the other role; a
            client's is open to other users.
    """
    remedy = "generate the keys again"
    path = folder / INDEX
    if not path.exists():
        raise AtlasError(
            "there are no complete keys here",
            where=str(folder),
            why=f"{INDEX} is missing; it is the last file that key generation writes",
            remedy=remedy,
        )
    index = read_json(path, _Index, "the index of the keys", MIB, remedy=remedy, links=False)
    if index.role != role:
        raise AtlasError(
            f"these are not the keys of a {role}",
            where=str(folder),
            why=f"{INDEX} says role {index.role!r}; expected {role!r}",
        )
    return DesiloParameters.from_dict(index.parameters), index.identity, index.model_dump()


def read_secret(reader: Callable[[str], Any], path: Path) -> Any:
    """As :func:`read_key`, of a key that nobody else may be able to read."""
    if path.exists():
        require_private(path)
    return read_key(reader, path)


def read_key(reader: Callable[[str], Any], path: Path, expected: str | None = None) -> Any:
    """``reader(path)`` with the library's errors turned into one that names the file.

    Args:
        reader: of the library.
        path: the key.
        expected: its SHA-256, where the index has it: the library knows a damaged key, but not one
            of another key set or of another rotation.

    Raises:
        AtlasError: the key is missing, damaged, or another one.
    """
    try:
        open_plain(path, LARGEST, links=False).close()
        if expected is not None and sha256_of(path) != expected:
            raise ValueError(f"its SHA-256 is not the one in {INDEX}")
        return reader(str(path))
    except (AtlasError, RuntimeError, OSError, ValueError) as error:
        raise AtlasError(
            f"the key {path.name} is missing or damaged",
            where=str(path),
            why=str(error),
            remedy="generate the keys again",
        ) from error
