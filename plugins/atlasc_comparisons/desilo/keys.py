"""Keys of the desilo backend, divided by role.

The **client** holds the secret key: it encrypts queries and decrypts answers. The **server** holds
only evaluation keys, so no mistake on the server can decrypt anything. Each role has its own
folder, which only its owner can read (folders 0700, files 0600):

```
client/  keys.json  secret.key
server/  keys.json  relinearization.key  conjugation.key  rotation_<amount>.key ...  [bootstrap.key]
```

``keys.json`` holds the parameters and the identity of the key set, which every ciphertext carries
too: the library itself accepts a ciphertext of other parameters and decrypts it to garbage. It is
written last, so a folder without it comes from an interrupted key generation and is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import sha256_of
from atlasc.program.key_plan import KeyPlan
from atlasc.targets.base import Progress, no_progress
from atlasc.targets.key_folders import KeyIndex, read_key, write_bytes, write_index
from atlasc.targets.machine import require_disk, require_memory
from atlasc_comparisons.desilo.library import library_engine
from atlasc_comparisons.desilo.parameters import (
    BOOTSTRAP_FILE_BYTES,
    BOOTSTRAP_LEVELS,
    DesiloParameters,
)

_KINDS = {"rotation": "fixed_rotation", "bootstrap": "merge_bootstrap"}
"""The library's names of the kinds of keys, if they differ."""


@dataclass
class KeySet:
    """The keys of a client, of a server, or of both in the process that makes them.

    Attributes:
        parameters: parameter set of the engine.
        identity: 32 hexadecimal digits, the same for both roles.
        secret: the library's secret key, which the client keeps to itself; None at a server.
        plan: the server's keys, each with the highest level at which it may be used; None at a
            client.
        keys: the library's keys by name: ``relinearization``, ``conjugation``, ``bootstrap`` and
            ``rotation_<amount>`` with 0 < amount < slots, to the left. They reveal nothing of the
            client's data.
    """

    parameters: DesiloParameters
    identity: str
    secret: Any = field(default=None, repr=False)
    plan: KeyPlan | None = None
    keys: dict[str, Any] = field(default_factory=dict, repr=False)

    def reach(self, name: str) -> int:
        """The highest level that a key of the server serves; −1 without that key."""
        assert self.plan is not None
        kind, _, amount = name.partition("_")
        if amount:
            return self.plan.rotations.get(int(amount), -1)
        level: int | None = getattr(self.plan, f"{kind}_level")
        return -1 if level is None else level

    @classmethod
    def generate(
        cls, parameters: DesiloParameters, plan: KeyPlan, progress: Progress = no_progress
    ) -> KeySet:
        """Make all keys in memory, for a program that runs in this process.

        Args:
            parameters: parameter set of the engine.
            plan: the keys to make. A bootstrap needs full keys for relinearization and conjugation,
                which are then always made.
            progress: called before each key.

        Raises:
            AtlasError: the keys would not fit into memory, or a level is too high.
        """
        plan = _checked(parameters, plan)
        _require_memory(parameters, plan, "the keys")
        keys = _new_secret(parameters)
        keys.plan, keys.keys = plan, dict(_made(keys, plan, progress))
        return keys

    @classmethod
    def load(cls, folder: Path, index: KeyIndex) -> KeySet:
        """Read the keys of a folder into memory, the client's or the server's.

        Raises:
            AtlasError: a key is missing or damaged; the keys would not fit into memory.
        """
        parameters, plan = DesiloParameters.from_dict(index.parameters), index.plan
        if index.role == "client":
            reader = library_engine(parameters).read_secret_key
            return cls(parameters, index.identity, read_key(reader, folder / "secret.key"))
        _require_memory(parameters, plan, "the evaluation keys")
        engine, keys = library_engine(parameters), dict[str, Any]()
        for name in _arguments(parameters, plan):
            path = folder / f"{name}.key"
            reader = _call(engine, "read", name)
            keys[name] = read_key(reader, path, index.files.get(path.name, ""))
        return cls(parameters, index.identity, plan=plan, keys=keys)


def generate_to(
    parameters: DesiloParameters, plan: KeyPlan, folder: Path, progress: Progress
) -> None:
    """Make the keys one after another, and write them to ``client`` and ``server`` in ``folder``.

    This takes little memory. The other arguments are those of :meth:`KeySet.generate`.

    Raises:
        AtlasError: there is too little disk space or memory.
    """
    plan = _checked(parameters, plan)
    sizes = _file_bytes(parameters, plan)
    require_disk(sum(sizes.values()), folder, "the evaluation keys")
    largest = 0 if parameters.bootstrap else parameters.key_bytes(parameters.max_level)
    needed = largest + sum(parameters.memory_parts({}).values())
    require_memory(needed, "generating the keys")
    keys = _new_secret(parameters)
    engine, digests = library_engine(parameters), dict[str, str]()
    for name, key in _made(keys, plan, progress):
        path = folder / "server" / f"{name}.key"
        write_bytes(path, b"")
        _call(engine, "write", name)(key, str(path))
        _require_size(path, sizes[name])
        digests[path.name] = sha256_of(path)
    told: dict[str, Any] = {"parameters": parameters, "identity": keys.identity}
    write_index(folder, "server", **told, target="desilo", **plan.facts(), files=digests)
    secret = bytes(engine.serialize_secret_key(keys.secret))
    write_bytes(folder / "client" / "secret.key", secret)
    write_index(folder, "client", **told, target="desilo")


def _require_size(path: Path, expected: int) -> None:
    """Refuse a key that the library could not write completely, which the library does not report.
    Sizes are predicted to one in a hundred."""
    size = path.stat().st_size
    if size < 0.99 * expected:
        raise AtlasError(
            f"the key {path.name} cannot be written",
            where=str(path),
            why=f"{size} bytes of {expected} were written: the disk is full, or the size of files "
            "is limited",
            remedy="make room on the disk, and run the command again",
        )


def ternary_secret(degree: int) -> np.ndarray:
    """A dense ternary secret from the system's entropy: ``degree`` uniform coefficients -1, 0, 1.

    The library's own secrets follow from ten words that an engine drew from std::random_device when
    it was made, so a copy of the running process would make the same secret.
    """
    return np.array([secrets.randbelow(3) - 1 for _ in range(degree)], np.int64)


def _new_secret(parameters: DesiloParameters) -> KeySet:
    secret = library_engine(parameters).create_secret_key(ternary_secret(parameters.ring_degree))
    return KeySet(parameters, secrets.token_hex(16), secret)


def _arguments(parameters: DesiloParameters, plan: KeyPlan) -> dict[str, tuple[int, ...]]:
    """The keys of a plan in order of making, with their arguments: the level; for a rotation also
    the amount to the right. A bootstrap needs full keys, without a level."""
    found: dict[str, tuple[int, ...]] = {}
    for kind in ("relinearization", "conjugation"):
        level = getattr(plan, f"{kind}_level")
        if level is not None:
            found[kind] = () if parameters.bootstrap else (level,)
    for amount, level in plan.rotations.items():
        found[f"rotation_{amount}"] = parameters.slots - amount, level
    return found | ({"bootstrap": ()} if parameters.bootstrap else {})


def _file_bytes(parameters: DesiloParameters, plan: KeyPlan) -> dict[str, int]:
    """Name of a key -> bytes of its file."""
    full = parameters.needs.key_levels[:1]
    found = {
        name: parameters.key_bytes((*full, *arguments)[-1])
        for name, arguments in _arguments(parameters, plan).items()
    }
    return found | ({"bootstrap": BOOTSTRAP_FILE_BYTES} if parameters.bootstrap else {})


def _call(engine: Any, action: str, name: str) -> Callable[..., Any]:
    """The method of the library that creates, reads or writes a key."""
    kind = name.partition("_")[0]
    return cast("Callable[..., Any]", getattr(engine, f"{action}_{_KINDS.get(kind, kind)}_key"))


def _made(secret: KeySet, plan: KeyPlan, progress: Progress) -> Iterator[tuple[str, Any]]:
    """Make the evaluation keys of a secret one by one, as (name, key)."""
    engine, keys = library_engine(secret.parameters), _arguments(secret.parameters, plan)
    for index, (name, arguments) in enumerate(keys.items()):
        progress(name.replace("_", " ") + " key", index, len(keys))
        yield name, _call(engine, "create", name)(secret.secret, *arguments)


def _checked(parameters: DesiloParameters, plan: KeyPlan) -> KeyPlan:
    """The plan, with full keys for a bootstrap; AtlasError for an impossible level."""
    levels = plan.relinearization_level, plan.conjugation_level
    for level in (*plan.rotations.values(), *(level or 0 for level in levels)):
        if not 0 <= level <= parameters.max_level:
            raise AtlasError(
                f"a key at level {level} is impossible",
                why=f"these parameters have levels 0 to {parameters.max_level}",
            )
    full = (BOOTSTRAP_LEVELS,) * 2 if parameters.bootstrap else levels
    return KeyPlan(dict(plan.rotations), *full)


def _require_memory(parameters: DesiloParameters, plan: KeyPlan, purpose: str) -> None:
    """Raise AtlasError unless memory suffices to execute an unknown program with these keys."""
    require_memory(sum(parameters.plan_memory(plan).values()), purpose)
