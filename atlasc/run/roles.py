"""Client and server apart: each has its part of a bundle and its own keys.

The client makes the keys, encrypts and decrypts; the server executes. The server's keys travel
once, then a query and an answer each time (:mod:`atlasc.bundle.messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle, Role
from atlasc.bundle.ledger import Ledger
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.rotation_keys import key_plan
from atlasc.run.session import decrypt_all, encrypt_all, execute
from atlasc.run.timing import Pace, Timing
from atlasc.targets import find_target
from atlasc.targets.base import Progress, Target, no_progress
from atlasc.targets.engine import SlotEngine
from atlasc.targets.key_folders import INDEX


def check_target(bundle: Bundle, target: str | None = None) -> Target:
    """The target that the roles work on.

    Args:
        bundle: the compiled model.
        target: name of another target than the bundle's own.

    Raises:
        AtlasError: it is unknown, or its library is missing.
    """
    found = find_target(target or bundle.target)
    found.check()
    return found


def generate_keys(
    bundle: Bundle, target: Target, folder: Path, progress: Progress = no_progress
) -> None:
    """Make the keys of a program: ``folder/client`` and ``folder/server``, both or none.

    Needs the client's part of the bundle alone.

    Raises:
        AtlasError: the folder exists; too little memory or disk space, found before any key is
            made.
    """
    plan = key_plan(bundle.client.interface)
    with new_folder(folder, private=True) as draft:
        places = draft / "client", draft / "server"
        target.generate_keys(bundle.parameters, plan, *places, progress)


@dataclass(frozen=True)
class ClientRole:
    """The client, who alone has the secret key.

    Attributes:
        bundle: the client's part is enough.
        engine: encrypts and decrypts.
        ledger: of the keys.
    """

    bundle: Bundle
    engine: SlotEngine[Any]
    ledger: Ledger

    @classmethod
    def open(cls, bundle: Bundle, target: Target, keys: Path) -> ClientRole:
        """Load the client's keys.

        Args:
            bundle: see the class.
            target: whose keys they are.
            keys: the client's folder, or the one that holds it.

        Raises:
            AtlasError: as :meth:`atlasc.targets.base.Target.role_engine`.
        """
        folder = key_folder(keys, "client")
        return cls(bundle, target.role_engine("client", folder, bundle.parameters), Ledger(folder))

    def encrypt(self, arrays: Mapping[str, np.ndarray], *, unchecked: bool = False) -> Message:
        """Encrypt at most a batch of raw inputs into a query, which the ledger then knows.

        Args:
            arrays: raw inputs by name.
            unchecked: encrypt inputs that are far larger than those of calibration.

        Raises:
            AtlasError: of the inputs.
        """
        packed = self.bundle.client.query(arrays, unchecked=unchecked)
        values = encrypt_all(self.engine, packed)
        query = Message.of(
            "query", self.bundle, self.engine, values, packed.count, public=packed.public
        )
        self.ledger.add(query.entry)
        return query

    def decrypt(self, answer: Message) -> Answers:
        """Answers, and which of them cannot be right.

        Raises:
            AtlasError: the answer is of other keys, or to a query that these keys did not make; or
                it is a second answer to a query.
        """
        self.ledger.check(answer.entry)
        values, _ = answer.ciphertexts(self.bundle, self.engine)
        slots = decrypt_all(self.engine, values)
        self.ledger.add(answer.entry)
        return self.bundle.client.answers(slots, answer.index.count)


@dataclass(frozen=True)
class ServerRole:
    """The server, who executes programs and has no secret key.

    Attributes:
        bundle: the server's part is enough.
        target: of the engine.
        engine: has the evaluation keys.
    """

    bundle: Bundle
    target: Target
    engine: SlotEngine[Any]

    @classmethod
    def open(cls, bundle: Bundle, target: Target, keys: Path) -> ServerRole:
        """Load the server's keys; arguments as for :meth:`ClientRole.open`.

        Raises:
            AtlasError: as :meth:`atlasc.targets.base.Target.role_engine`.
        """
        folder = key_folder(keys, "server")
        plan = key_plan(bundle.program)
        engine = target.role_engine("server", folder, bundle.parameters, plan)
        return cls(bundle, target, engine)

    def execute(
        self, query: Message, progress: Progress = no_progress
    ) -> tuple[Message, Timing | None]:
        """The answer to a query, and how long each op took; None if nothing was encrypted.

        Args:
            query: read with :meth:`atlasc.bundle.messages.Message.read`.
            progress: called before each op with predicted hundredths.

        Raises:
            AtlasError: the query is of other keys.
        """
        values, public = query.ciphertexts(self.bundle, self.engine)
        pace = Pace(self.bundle, self.target, 1, progress)
        results = execute(self.engine, self.bundle.program, values, public, pace)
        pace.finish()
        count, name = query.index.count, query.index.query
        answer = Message.of("answer", self.bundle, self.engine, results, count, query=name)
        return answer, pace.timing()


def key_folder(keys: Path, role: Role) -> Path:
    """The folder of a role: the one given, or the one of that name in it."""
    if not keys.is_dir():
        raise AtlasError(f"keys {keys} not found", remedy="make them with atlasc keygen")
    whole = not (keys / INDEX).exists() and (keys / role).is_dir()
    return keys / role if whole else keys
