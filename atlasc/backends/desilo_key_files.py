"""Folders of keys: who may read them, and how an incomplete or a wrong one is recognised."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atlasc.backends.desilo_parameters import DesiloParameters
from atlasc.ir.errors import AtlasError

INDEX = "keys.json"
FORMAT = 1


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
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a new file that only its owner may read."""
    with create(path) as file:
        file.write(data)


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


def read_index(folder: Path, role: str) -> tuple[DesiloParameters, str, dict[str, Any]]:
    """Parameters, identity and the whole index of a folder of keys of the given role.

    Raises:
        AtlasError: the folder is incomplete, damaged, or holds the keys of the other role.
    """
    remedy = "generate the keys again"
    try:
        index = json.loads((folder / INDEX).read_text())
        found, version, identity = index["role"], index["format"], str(index["identity"])
    except FileNotFoundError as error:
        raise AtlasError(
            "there are no complete keys here",
            where=str(folder),
            why=f"{INDEX} is missing; it is the last file that key generation writes",
            remedy=remedy,
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise AtlasError(f"{INDEX} is damaged", where=str(folder), remedy=remedy) from error
    if found != role or version != FORMAT:
        raise AtlasError(
            f"these are not the keys of a {role}",
            where=str(folder),
            why=f"{INDEX} says role {found!r}, format {version}; expected {role!r}, {FORMAT}",
        )
    return DesiloParameters.from_dict(index["parameters"]), identity, index


def read_key(reader: Callable[[str], Any], path: Path) -> Any:
    """``reader(path)`` with the library's errors turned into one that names the file."""
    try:
        return reader(str(path))
    except (RuntimeError, OSError, ValueError) as error:
        raise AtlasError(
            f"the key {path.name} is missing or damaged",
            where=str(path),
            why=str(error),
            remedy="generate the keys again",
        ) from error
