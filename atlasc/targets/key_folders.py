"""Folders of keys: who may read them, and how an incomplete or wrong folder is recognised."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import (
    GIB,
    MIB,
    Schema,
    Sha256,
    open_plain,
    read_json,
    require_private,
    sha256_of,
)
from atlasc.program.key_plan import Derivation, KeyPlan
from atlasc.targets.parameters import ParameterSet

Role = Literal["client", "server"]
INDEX = "keys.json"
LARGEST = 64 * GIB
"""Greatest size in bytes of a key; a bootstrap key has 14 GiB."""
_Level = Annotated[int, Field(ge=0, le=1000)]
_KeyName = Annotated[str, Field(pattern=r"^[a-z]+(_[0-9]{1,9})?\.key$")]
_Amount = Annotated[int, Field(ge=1, lt=10**9, strict=False)]
"""Names of JSON members are texts, so integers are parsed from them."""


class DerivationIndex(Schema):
    """See :class:`Derivation`."""

    level: _Level
    last: _Level
    roots: dict[_Amount, _Amount]


class KeyIndex(Schema):
    """The content of ``keys.json``; the index of a client has no plan of keys.

    Attributes:
        target: name of the keys' target; empty in old folders.
        note: what a person must know of these keys.
        identity: identity of the key set; every ciphertext carries it.
        rotations, relinearization_level, conjugation_level, derivation: see :class:`KeyPlan`.
        files: file name of a key -> its SHA-256.
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
    derivation: DerivationIndex | None = None
    files: dict[_KeyName, Sha256] = Field(default_factory=dict)

    @property
    def plan(self) -> KeyPlan:
        """The keys, each with the highest level at which it may be used."""
        of = self.derivation
        derivation = Derivation(of.level, of.last, of.roots) if of else Derivation()
        levels = self.relinearization_level, self.conjugation_level
        return KeyPlan(self.rotations, *levels, derivation=derivation)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a new file that only its owner may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def write_index(folder: Path, role: Role, parameters: ParameterSet, **facts: Any) -> None:
    """Write ``keys.json`` to the folder of a role. This is the last step: it marks the folder as
    complete. ``facts`` are further members of :class:`KeyIndex`."""
    facts = {"note": "", **facts, "parameters": parameters.to_dict()}
    index = KeyIndex(format=1, role=role, security_bits=parameters.security_bits, **facts)
    text = index.model_dump_json(indent=1, exclude_unset=True) + "\n"
    write_bytes(folder / role / INDEX, text.encode())


def read_index(
    folder: Path, role: Role, target: str, parameters: ParameterSet, plan: KeyPlan | None = None
) -> KeyIndex:
    """Read the index of a folder of keys, before gigabytes of keys are loaded.

    Args:
        folder: folder of the keys.
        role, target: the expected role and target.
        parameters: parameter set of the program.
        plan: keys that the program needs; None accepts any keys.

    Raises:
        AtlasError: the folder is incomplete or damaged, or its keys belong to the other role,
            another target or another program.
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
    why = ""
    if (of_program := parameters.to_dict()) != index.parameters:
        why = f"the keys have the parameters {index.parameters}, but the program has {of_program}"
    elif plan is not None and (lacking := _lacking(index.plan, plan)):
        why = f"{len(lacking)} keys are missing, first the key for {lacking[0]}"
    if why:
        raise AtlasError(
            "these keys were made for another program",
            where=str(folder),
            why=why,
            remedy="generate keys for this bundle with atlasc keygen",
        )
    return index


def _lacking(have: KeyPlan, plan: KeyPlan) -> list[str]:
    """Names of the keys of a plan that a folder lacks."""
    wanted, there = plan.rotations, have.sent
    if plan.derivation == have.derivation:
        wanted = plan.sent
    lacking = [
        f"rotation {amount} to level {level}"
        for amount, level in wanted.items()
        if there.get(amount, -1) < level
    ]
    for kind in ("relinearization", "conjugation"):
        needed, reach = (getattr(one, f"{kind}_level") for one in (plan, have))
        if needed is not None and (reach is None or reach < needed):
            lacking.append(f"{kind} to level {needed}")
    return lacking


def configuration_of(target: str, parameters: ParameterSet, plan: KeyPlan) -> str:
    """SHA-256 (hex) of everything that decides which evaluation keys are made. The keys of one
    program serve every other program with the same value.
    """
    facts = {
        "target": target,
        "parameters": parameters.to_dict(),
        "rotations": sorted(plan.rotations.items()),
        "relinearization": plan.relinearization_level,
        "conjugation": plan.conjugation_level,
    }
    if plan.derivation.roots:
        facts["derivation"] = asdict(plan.derivation)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_key(reader: Callable[[str], Any], path: Path, expected: str | None = None) -> Any:
    """Call ``reader(path)``, and turn the library's errors into one error that names the file.

    Args:
        reader: function of the library that reads a key.
        path: file of the key.
        expected: its SHA-256 by the index; the library recognises a damaged key, but not a key of
            another key set or another rotation. None for a secret key, which nobody else may be
            able to read.

    Raises:
        AtlasError: the key is missing, damaged, exchanged, or open to other users.
    """
    if expected is None and path.exists():
        require_private(path)
    elif expected is not None:
        require_digest(path, expected)
    try:
        open_plain(path, LARGEST, links=False).close()
        return reader(str(path))
    except (AtlasError, RuntimeError, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def require_digest(path: Path, expected: str) -> None:
    """Raise AtlasError unless an evaluation key has the SHA-256 of the index.

    An empty ``expected`` means that the index has none.
    """
    try:
        open_plain(path, LARGEST, links=False).close()
        found = sha256_of(path)
    except (AtlasError, OSError) as error:
        raise _damaged(path, str(error)) from error
    if found != expected:
        raise _damaged(path, f"its SHA-256 is not the one in {INDEX}")


def _damaged(path: Path, why: str) -> AtlasError:
    return AtlasError(
        f"the key {path.name} is missing or damaged",
        where=str(path),
        why=why,
        remedy="generate the keys again",
    )
