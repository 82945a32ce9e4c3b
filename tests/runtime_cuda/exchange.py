"""What two machines exchange: one is the client, the other one the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from tiny_model import Tiny, simulated

import atlasc
from atlasc.bundle.folder import load_bundle


class Keys(NamedTuple):
    """Files of a client's keys."""

    secret: Path
    evaluation: Path


class Machine(Protocol):
    """A machine that does any role of a program."""

    def keygen(self, folder: Path) -> Keys:
        """Make keys in a new folder."""

    def encrypt(self, keys: Keys, query: Path) -> None:
        """Encrypt the first batch of the program's data."""

    def execute(self, keys: Keys, query: Path, answer: Path) -> None:
        """Answer a query."""

    def decrypt(self, keys: Keys, answer: Path) -> Mapping[str, np.ndarray]:
        """The numbers of an answer by the names of outputs."""


class Here:
    """This machine, by Python."""

    def __init__(self, tiny: Tiny) -> None:
        self._bundle = tiny.bundle
        with np.load(tiny.data) as file:
            self._images = file["pixel_values"][: load_bundle(tiny.bundle).batch]

    def _client(self, keys: Keys) -> atlasc.Client:
        return atlasc.Client(self._bundle, keys.secret.parent)

    def keygen(self, folder: Path) -> Keys:
        atlasc.keygen(self._bundle, folder)
        return Keys(folder / "client" / "secret.key", folder / "server" / "evaluation.key")

    def encrypt(self, keys: Keys, query: Path) -> None:
        query.write_bytes(bytes(self._client(keys).encrypt(self._images)))

    def execute(self, keys: Keys, query: Path, answer: Path) -> None:
        server = atlasc.Server(self._bundle, keys.evaluation.read_bytes())
        answer.write_bytes(server.execute(query.read_bytes()))

    def decrypt(self, keys: Keys, answer: Path) -> Mapping[str, np.ndarray]:
        return self._client(keys).decrypt(answer.read_bytes()).outputs


def require_answered(
    tiny: Tiny, client: Machine, server: Machine, folder: Path, others: Sequence[Machine] = ()
) -> None:
    """The answer is right, and the client's machine would have answered the same, byte for byte.

    Args:
        tiny: the program.
        client, server: who does what.
        folder: of the files.
        others: machines that decrypt the same numbers with the client's key.
    """
    query, answer, again = (folder / name for name in ("query", "answer", "again"))
    keys = client.keygen(folder / "keys")
    client.encrypt(keys, query)
    server.execute(keys, query, answer)
    client.execute(keys, query, again)
    assert again.read_bytes() == answer.read_bytes()
    found, bundle = client.decrypt(keys, answer), load_bundle(tiny.bundle)
    for name, array in simulated(bundle, tiny.data, list(range(bundle.batch))).items():
        np.testing.assert_allclose(found[name], array, atol=1e-4)
        for other in others:
            there = other.decrypt(keys, answer)
            np.testing.assert_allclose(there[name], found[name], atol=1e-9)
