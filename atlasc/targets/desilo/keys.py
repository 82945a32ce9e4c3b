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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.plain import sha256_of
from atlasc.targets.desilo.library import library_engine
from atlasc.targets.desilo.parameters import BOOTSTRAP_LEVELS, DesiloParameters
from atlasc.targets.key_folders import (
    create,
    new_folder,
    read_index,
    read_key,
    read_secret,
    require_size,
    write_bytes,
    write_index,
)
from atlasc.targets.memory import require_disk, require_memory

Progress = Callable[[str, int, int], None]
"""Called as progress(what, done, total) before each key is made."""


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
        """Write to a folder that does not exist yet."""
        new_folder(folder)
        engine = library_engine(self.parameters)
        write_bytes(folder / "secret.key", bytes(engine.serialize_secret_key(self.secret)))
        write_index(folder, "client", "desilo", self.parameters, self.identity)

    @classmethod
    def load(cls, folder: Path) -> ClientKeys:
        """Raises AtlasError when the folder is incomplete, damaged, or not a client's."""
        index = read_index(folder, "client", "desilo")
        parameters = DesiloParameters.from_dict(index.parameters)
        secret = read_secret(library_engine(parameters).read_secret_key, folder / "secret.key")
        return cls(parameters, index.identity, secret)


@dataclass
class EvaluationKeys:
    """What the server computes with; public as far as the client's data are concerned.

    Attributes:
        parameters: of the engine.
        identity: that of the client's keys.
        rotation_levels: amount (0 < amount < slots, to the left) -> highest level it may be
            used at.
        relinearization_level: highest level at which ciphertexts may be multiplied; None: no key.
        conjugation_level: highest level at which they may be conjugated; None: no key.
        relinearization, rotations, conjugation, bootstrap: the library's keys.
    """

    parameters: DesiloParameters
    identity: str
    rotation_levels: dict[int, int]
    relinearization_level: int | None
    conjugation_level: int | None = None
    relinearization: Any = field(default=None, repr=False)
    rotations: dict[int, Any] = field(default_factory=dict, repr=False)
    conjugation: Any = field(default=None, repr=False)
    bootstrap: Any = field(default=None, repr=False)

    def reaches(self, amount: int, level: int) -> bool:
        """Whether there is a rotation key of that amount that serves a level."""
        return self.rotation_levels.get(amount, -1) >= level

    @classmethod
    def load(cls, folder: Path) -> EvaluationKeys:
        """Read all keys into memory.

        Raises:
            AtlasError: the folder is incomplete, damaged or not a server's; or the keys would not
                fit into memory.
        """
        index = read_index(folder, "server", "desilo")
        parameters = DesiloParameters.from_dict(index.parameters)
        rotations = {int(amount): level for amount, level in index.rotations.items()}
        levels = index.relinearization_level, index.conjugation_level
        require_memory(parameters.memory_bytes(rotations, *levels), "the evaluation keys")
        engine = library_engine(parameters)
        keys = cls(parameters, index.identity, rotations, *levels)

        def read(name: str) -> Any:
            reader = getattr(engine, f"read_{_kind(name)}_key")
            file = f"{name}.key"
            return read_key(reader, folder / file, index.files.get(file, ""))

        if keys.relinearization_level is not None:
            keys.relinearization = read("relinearization")
        for amount in rotations:
            keys.rotations[amount] = read(f"rotation_{amount}")
        if keys.conjugation_level is not None:
            keys.conjugation = read("conjugation")
        if parameters.bootstrap:
            keys.bootstrap = read("bootstrap")
        return keys


@dataclass
class KeySet:
    """Both sides of the keys, as they exist where they are generated: at the client."""

    client: ClientKeys
    evaluation: EvaluationKeys

    @classmethod
    def generate(
        cls,
        parameters: DesiloParameters,
        rotations: Mapping[int, int],
        *,
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
        progress: Progress | None = None,
    ) -> KeySet:
        """Make all keys in memory, for a program that runs in this process.

        Args:
            parameters: which engine.
            rotations: amount (to the left, any integer) -> highest level at which it is used.
            relinearization_level: highest level of a product of ciphertexts; None makes no key
                for leveled parameters. A bootstrap needs a full one, which is always made then.
            conjugation_level: the same for conjugations.
            progress: see :data:`Progress`.

        Raises:
            AtlasError: the keys would not fit into memory, or a level is too high.
        """
        levels = relinearization_level, conjugation_level
        plan = _normalise(parameters, rotations, *levels)
        require_memory(parameters.memory_bytes(plan, *levels), "the keys")
        client, made = _generator(parameters, plan, *levels, progress)
        relinearization, conjugation = _reach(parameters, *levels)
        keys = EvaluationKeys(parameters, client.identity, plan, relinearization, conjugation)
        for name, key in made:
            if name.startswith("rotation_"):
                keys.rotations[int(name.removeprefix("rotation_"))] = key
            else:
                setattr(keys, name, key)
        return cls(client, keys)


def generate_to(
    parameters: DesiloParameters,
    rotations: Mapping[int, int],
    client_folder: Path,
    server_folder: Path,
    *,
    relinearization_level: int | None = None,
    conjugation_level: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Make the keys one after another and write each to its folder: little memory is needed.

    Arguments as for :meth:`KeySet.generate`. Neither folder may hold keys already.

    Raises:
        AtlasError: too little disk space or memory, or a folder that is not empty.
    """
    levels = relinearization_level, conjugation_level
    plan = _normalise(parameters, rotations, *levels)
    size = parameters.evaluation_key_bytes(plan, *levels, on_disk=True)
    largest = 0 if parameters.bootstrap else parameters.key_bytes(parameters.max_level)
    require_disk(size, server_folder, "the evaluation keys")
    require_memory(largest + parameters.memory_bytes({}), "generating the keys")
    for folder in (client_folder, server_folder):
        new_folder(folder)
    client, made = _generator(parameters, plan, *levels, progress)
    engine, digests = library_engine(parameters), dict[str, str]()
    for name, key in made:
        path = server_folder / f"{name}.key"
        create(path).close()
        getattr(engine, f"write_{_kind(name)}_key")(key, str(path))
        require_size(path, parameters.key_file_bytes(name, plan, *levels))
        digests[path.name] = sha256_of(path)
    relinearization, conjugation = _reach(parameters, *levels)
    write_index(
        server_folder,
        "server",
        "desilo",
        parameters,
        client.identity,
        rotations={str(amount): level for amount, level in plan.items()},
        relinearization_level=relinearization,
        conjugation_level=conjugation,
        files=digests,
    )
    write_bytes(client_folder / "secret.key", bytes(engine.serialize_secret_key(client.secret)))
    write_index(client_folder, "client", "desilo", parameters, client.identity)


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
    return {"rotation": "fixed_rotation", "bootstrap": "merge_bootstrap"}.get(
        name.partition("_")[0], name
    )


def _generator(
    parameters: DesiloParameters,
    plan: Mapping[int, int],
    relinearization_level: int | None,
    conjugation_level: int | None,
    progress: Progress | None,
) -> tuple[ClientKeys, Iterator[tuple[str, Any]]]:
    """A new secret, and an iterator that makes its evaluation keys one by one: (name, key)."""
    engine = library_engine(parameters)
    secret = engine.create_secret_key(ternary_secret(parameters.ring_degree))

    makers: dict[str, Callable[[], Any]] = {}
    levels = {"relinearization": relinearization_level, "conjugation": conjugation_level}
    for name, reach in levels.items():
        make = getattr(engine, f"create_{name}_key")
        if parameters.bootstrap:  # a bootstrap needs full ones
            makers[name] = partial(make, secret)
        elif reach is not None:
            makers[name] = partial(make, secret, reach)
    for amount, level in plan.items():
        right = parameters.slots - amount  # the library rotates to the right
        makers[f"rotation_{amount}"] = partial(
            engine.create_fixed_rotation_key, secret, right, level
        )
    if parameters.bootstrap:
        makers["bootstrap"] = partial(engine.create_merge_bootstrap_key, secret)

    def made() -> Iterator[tuple[str, Any]]:
        for index, (name, make) in enumerate(makers.items()):
            if progress is not None:
                progress(name.replace("_", " ") + " key", index, len(makers))
            yield name, make()

    return ClientKeys(parameters, secrets.token_hex(16), secret), made()


def _normalise(
    parameters: DesiloParameters, rotations: Mapping[int, int], *levels: int | None
) -> dict[int, int]:
    """The rotations with 0 < amount < slots, checked; duplicates keep the higher level."""
    plan: dict[int, int] = {}
    for amount, level in rotations.items():
        amount %= parameters.slots
        if amount:
            plan[amount] = max(level, plan.get(amount, 0))
    for level in (*plan.values(), *(level or 0 for level in levels)):
        if not 0 <= level <= parameters.max_level:
            raise AtlasError(
                f"a key at level {level} is impossible",
                why=f"these parameters have levels 0 to {parameters.max_level}",
            )
    return plan


def _reach(parameters: DesiloParameters, *levels: int | None) -> tuple[int | None, ...]:
    return (BOOTSTRAP_LEVELS,) * len(levels) if parameters.bootstrap else levels
