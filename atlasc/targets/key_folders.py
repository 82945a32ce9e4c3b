"""Folders of keys: who may read them, and how an incomplete or a wrong one is recognised."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import Schema, Sha256, read_json
from atlasc.ir.files.plain import GIB, MIB, open_plain, require_private, sha256_of
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.parameters import ParameterSet

Role = Literal["client", "server"]
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
    folder: Path,
    role: Role,
    target: str,
    parameters: ParameterSet,
    identity: str,
    plan: KeyPlan | None = None,
    *,
    note: str = "",
    files: dict[str, str] | None = None,
) -> None:
    """Write ``keys.json``; the last step, because it makes the folder count as complete."""
    told = {} if plan is None else {**asdict(plan), "files": files or {}}
    index = {
        "format": FORMAT,
        "target": target,
        "note": note,
        "role": role,
        "identity": identity,
        "parameters": parameters.to_dict(),
        "security_bits": parameters.security_bits,
        **told,
    }
    write_bytes(folder / INDEX, (json.dumps(index, indent=1) + "\n").encode())


class KeyIndex(Schema):
    """``keys.json``; a client's has no plan of keys.

    Attributes:
        target: whose keys these are; folders from before there were several have none.
        note: what a person must know of these keys.
        rotations, relinearization_level, conjugation_level: see :class:`KeyPlan`.
        files: SHA-256 of each key.
    """

    format: Literal[1]
    target: str = "desilo"
    note: str = ""
    role: Role
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    parameters: dict[str, JsonValue]
    security_bits: Annotated[int, Field(ge=0, le=1024)]
    rotations: dict[_Amount, _Level] = Field(default_factory=dict)
    relinearization_level: _Level | None = None
    conjugation_level: _Level | None = None
    files: dict[_KeyName, Sha256] = Field(default_factory=dict)

    @property
    def plan(self) -> KeyPlan:
        """The keys, each with the highest level at which it may be used."""
        rotations = {int(amount): level for amount, level in self.rotations.items()}
        return KeyPlan(rotations, self.relinearization_level, self.conjugation_level)


def read_index(folder: Path, role: Role, target: str) -> KeyIndex:
    """The index of a folder of keys.

    Raises:
        AtlasError: the folder is incomplete, damaged, or holds the keys of the other role or of
            another target.
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
    index = read_json(path, KeyIndex, "the index of the keys", MIB, remedy=remedy, links=False)
    for what, found, wanted in (("role", index.role, role), ("target", index.target, target)):
        if found != wanted:
            raise AtlasError(
                f"these are not the keys of {'the target' if what == 'target' else 'a'} {wanted}",
                where=str(folder),
                why=f"{INDEX} says {what} {found!r}; expected {wanted!r}",
            )
    return index


def check_keys(
    folder: Path, role: Role, target: str, parameters: ParameterSet, plan: KeyPlan | None = None
) -> KeyIndex:
    """The index of a folder, before gigabytes of keys are loaded.

    Args:
        folder: of the keys.
        role, target: whose they must be.
        parameters: of the program.
        plan: keys that the program needs; None: any will do.

    Raises:
        AtlasError: as :func:`read_index`; the keys were made for another program.
    """
    index = read_index(folder, role, target)
    if (wanted := parameters.to_dict()) != index.parameters:
        why = f"they have the parameters {index.parameters}, the program {wanted}"
    elif lacking := [] if plan is None else _lacking(index.plan, plan, parameters.slots):
        why = f"{len(lacking)} keys are missing, the first is that of {lacking[0]}"
    else:
        return index
    raise AtlasError(
        "these keys were made for another program",
        where=str(folder),
        why=why,
        remedy="generate keys for this bundle with atlasc keygen",
    )


def _lacking(have: KeyPlan, plan: KeyPlan, slots: int) -> list[str]:
    """The keys of a plan that a folder does not have."""
    lacking = [
        f"rotation {amount} to level {level}"
        for amount, level in plan.rotations.items()
        if have.rotations.get(amount % slots, -1) < level
    ]
    for kind in ("relinearization", "conjugation"):
        needed, reach = (getattr(one, f"{kind}_level") for one in (plan, have))
        if needed is not None and (reach is None or reach < needed):
            lacking.append(f"{kind} to level {needed}")
    return lacking


def read_secret(reader: Callable[[str], Any], path: Path) -> Any:
    """As :func:`read_key`, of a key that nobody else may be able to read."""
    if path.exists():
        require_private(path)
    return read_key(reader, path)


def read_key(reader: Callable[[str], Any], path: Path, expected: str | None = None) -> Any:
    """``reader(path)`` with the library's errors as one error that names the file.

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
