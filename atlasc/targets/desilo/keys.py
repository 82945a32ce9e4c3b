"""Keys of the desilo backend, split by who may have them.

The **client** holds the secret key: it encrypts queries and decrypts answers. The **server** holds
evaluation keys only, so no mistake on the server can decrypt anything. Each side lives in its own
folder, readable by its owner alone (folders 0700, files 0600):

```
client/  keys.json  secret.key
server/  keys.json  relinearization.key  conjugation.key  rotation_<amount>.key ...  [bootstrap.key]
```

``keys.json`` holds the parameters and the identity of the key set, which every ciphertext carries
too: the library itself accepts a ciphertext of other parameters and decrypts it to garbage. It is
written last, so a folder without it is an interrupted key generation and is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.plain import require_private, sha256_of
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.base import Progress, no_progress
from atlasc.targets.desilo.library import library_engine
from atlasc.targets.desilo.parameters import BOOTSTRAP_LEVELS, DesiloParameters
from atlasc.targets.key_folders import (
    create,
    new_folder,
    read_index,
    read_key,
    require_size,
    write_bytes,
    write_index,
)
from atlasc.targets.machine import require_disk, require_memory

_KINDS = {"rotation": "fixed_rotation", "bootstrap": "merge_bootstrap"}
"""What the library calls the kinds of keys, where its names differ."""


@dataclass
class ClientKeys:
    """What the client keeps to itself.

    Attributes:
        parameters: of the engine.
        identity: 32 hexadecimal digits, the same on both sides of a key set.
        secret: the library's secret key.
    """

    parameters: DesiloParameters
    identity: str
    secret: Any = field(repr=False)

    def save(self, folder: Path) -> None:
        """Write to a folder that holds no keys yet."""
        new_folder(folder)
        engine = library_engine(self.parameters)
        write_bytes(folder / "secret.key", bytes(engine.serialize_secret_key(self.secret)))
        write_index(folder, "client", self.parameters.family, self.parameters, self.identity)

    @classmethod
    def load(cls, folder: Path) -> ClientKeys:
        """Raises AtlasError when the folder is incomplete, damaged, or not a client's."""
        index = read_index(folder, "client", DesiloParameters.family)
        parameters, path = DesiloParameters.from_dict(index.parameters), folder / "secret.key"
        if path.exists():
            require_private(path)
        secret = read_key(library_engine(parameters).read_secret_key, path)
        return cls(parameters, index.identity, secret)


@dataclass
class EvaluationKeys:
    """What the server computes with; public as far as the client's data are concerned.

    Attributes:
        parameters: of the engine.
        identity: that of the client's keys.
        plan: the keys, each with the highest level at which it may be used.
        keys: the library's, by name: ``relinearization``, ``conjugation``, ``bootstrap`` and
            ``rotation_<amount>`` with 0 < amount < slots, to the left.
    """

    parameters: DesiloParameters
    identity: str
    plan: KeyPlan
    keys: dict[str, Any] = field(default_factory=dict, repr=False)

    def reach(self, name: str) -> int:
        """The highest level that a key serves; −1 without that key."""
        kind, _, amount = name.partition("_")
        if amount:
            return self.plan.rotations.get(int(amount), -1)
        level: int | None = getattr(self.plan, f"{kind}_level")
        return -1 if level is None else level

    @classmethod
    def load(cls, folder: Path) -> EvaluationKeys:
        """Read all keys into memory.

        Raises:
            AtlasError: the folder is incomplete, damaged or not a server's; or the keys would not
                fit into memory.
        """
        index = read_index(folder, "server", DesiloParameters.family)
        parameters, plan = DesiloParameters.from_dict(index.parameters), index.plan
        _require_memory(parameters, plan, "the evaluation keys")
        engine, keys = library_engine(parameters), dict[str, Any]()
        for name in _names(parameters, plan):
            digest = index.files.get(f"{name}.key", "")
            reader = getattr(engine, f"read_{_kind(name)}_key")
            keys[name] = read_key(reader, folder / f"{name}.key", digest)
        return cls(parameters, index.identity, plan, keys)


@dataclass
class KeySet:
    """Both sides of the keys, as they exist where they are generated: at the client."""

    client: ClientKeys
    evaluation: EvaluationKeys

    @classmethod
    def generate(
        cls, parameters: DesiloParameters, plan: KeyPlan, progress: Progress = no_progress
    ) -> KeySet:
        """Make all keys in memory, for a program that runs in this process.

        Args:
            parameters: which engine.
            plan: which keys; amounts may be any integers, to the left. A bootstrap needs full keys
                for relinearisation and conjugation, which are always made then.
            progress: called before each key.

        Raises:
            AtlasError: the keys would not fit into memory, or a level is too high.
        """
        plan = _normalise(parameters, plan)
        _require_memory(parameters, plan, "the keys")
        client = _new_secret(parameters)
        made = dict(_made(client, plan, progress))
        return cls(client, EvaluationKeys(parameters, client.identity, plan, made))


def generate_to(
    parameters: DesiloParameters,
    plan: KeyPlan,
    client_folder: Path,
    server_folder: Path,
    progress: Progress = no_progress,
) -> None:
    """Make the keys one after another and write each to its folder: little memory is needed.

    Arguments as for :meth:`KeySet.generate`. Neither folder may hold keys already.

    Raises:
        AtlasError: too little disk space or memory, or a folder that is not empty.
    """
    plan = _normalise(parameters, plan)
    sizes = {name: parameters.key_file_bytes(name, plan) for name in _names(parameters, plan)}
    require_disk(sum(sizes.values()), server_folder, "the evaluation keys")
    largest = 0 if parameters.bootstrap else parameters.key_bytes(parameters.max_level)
    needed = largest + sum(parameters.memory_parts({}).values())
    require_memory(needed, "generating the keys")
    for folder in (client_folder, server_folder):
        new_folder(folder)
    client = _new_secret(parameters)
    engine, digests = library_engine(parameters), dict[str, str]()
    for name, key in _made(client, plan, progress):
        path = server_folder / f"{name}.key"
        create(path).close()
        getattr(engine, f"write_{_kind(name)}_key")(key, str(path))
        require_size(path, sizes[name])
        digests[path.name] = sha256_of(path)
    family, identity = parameters.family, client.identity
    write_index(server_folder, "server", family, parameters, identity, plan, files=digests)
    client.save(client_folder)


def ternary_secret(degree: int) -> np.ndarray:
    """A dense ternary secret from the system's entropy: ``degree`` uniform coefficients -1, 0, 1.

    The library's own secrets follow from ten words that an engine drew from std::random_device
    when it was made, so that a copy of the running process would make the same one.
    """
    found = np.empty(0, np.uint8)
    while len(found) < degree:
        drawn = np.frombuffer(secrets.token_bytes(degree), np.uint8)
        found = np.append(found, drawn[drawn < 255])  # 255 values are 85 of each residue
    return found[:degree].astype(np.int64) % 3 - 1


def _kind(name: str) -> str:
    """What the library calls the kind of a key."""
    kind = name.partition("_")[0]
    return _KINDS.get(kind, kind)


def _names(parameters: DesiloParameters, plan: KeyPlan) -> list[str]:
    """The keys of a plan, in the order in which they are made."""
    kinds = ("relinearization", "conjugation")
    names = [kind for kind in kinds if getattr(plan, f"{kind}_level") is not None]
    names += [f"rotation_{amount}" for amount in plan.rotations]
    return [*names, "bootstrap"] if parameters.bootstrap else names


def _new_secret(parameters: DesiloParameters) -> ClientKeys:
    secret = library_engine(parameters).create_secret_key(ternary_secret(parameters.ring_degree))
    return ClientKeys(parameters, secrets.token_hex(16), secret)


def _made(client: ClientKeys, plan: KeyPlan, progress: Progress) -> Iterator[tuple[str, Any]]:
    """Makes the evaluation keys of a secret one by one: (name, key)."""
    parameters, engine = client.parameters, library_engine(client.parameters)
    names = _names(parameters, plan)
    for index, name in enumerate(names):
        progress(name.replace("_", " ") + " key", index, len(names))
        arguments: tuple[int, ...] = ()  # a bootstrap needs full keys
        if name.startswith("rotation_"):
            amount = int(name.removeprefix("rotation_"))
            # The library rotates to the right.
            arguments = parameters.slots - amount, plan.rotations[amount]
        elif not parameters.bootstrap:
            arguments = (getattr(plan, f"{name}_level"),)
        yield name, getattr(engine, f"create_{_kind(name)}_key")(client.secret, *arguments)


def _normalise(parameters: DesiloParameters, plan: KeyPlan) -> KeyPlan:
    """The plan with 0 < amount < slots, checked; of equal amounts the higher level is kept."""
    rotations: dict[int, int] = {}
    for amount, level in plan.rotations.items():
        amount %= parameters.slots
        if amount:
            rotations[amount] = max(level, rotations.get(amount, 0))
    levels = plan.relinearization_level, plan.conjugation_level
    for level in (*rotations.values(), *(level or 0 for level in levels)):
        if not 0 <= level <= parameters.max_level:
            raise AtlasError(
                f"a key at level {level} is impossible",
                why=f"these parameters have levels 0 to {parameters.max_level}",
            )
    return KeyPlan(rotations, *((BOOTSTRAP_LEVELS,) * 2 if parameters.bootstrap else levels))


def _require_memory(parameters: DesiloParameters, plan: KeyPlan, purpose: str) -> None:
    """Raise AtlasError unless an unknown program can be executed with these keys."""
    levels = plan.relinearization_level, plan.conjugation_level
    require_memory(sum(parameters.memory_parts(plan.rotations, *levels).values()), purpose)
