"""What a text needs of the two roles of :mod:`atlasc.api.roles`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import Ledger
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.progress import ProgressCallback
from atlasc.run.timing import Timing
from atlasc.runtime.engine import RoleEngine


class Client(Protocol):
    """What a text needs of the role :class:`atlasc.api.roles.Client`."""

    bundle: Bundle
    engine: RoleEngine[Any]
    ledger: Ledger

    def query(self, arrays: Mapping[str, np.ndarray], *, name: str = "") -> Message:
        """Encrypt raw inputs."""

    def decrypt(self, answer: Message) -> Answers:
        """Decrypt an answer, if it is the only one to its query."""


class Server(Protocol):
    """What a text needs of the role :class:`atlasc.api.roles.Server`."""

    bundle: Bundle
    engine: RoleEngine[Any]

    def compute(
        self,
        values: Mapping[str, list[Any]],
        public: Mapping[str, np.ndarray],
        progress: ProgressCallback | None = None,
    ) -> tuple[dict[str, list[Any]], Timing | None]:
        """Execute the program."""
