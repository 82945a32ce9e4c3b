"""The server of a session: the step of a token, and the file of the keys and values before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.files import write_private_arrays
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB, read_npz
from atlasc.program.execute import execute
from atlasc.runtime.engine import RoleEngine

LARGEST = 256 * GIB
"""Greatest size in bytes of a file of keys and values."""
_COUNT, _PROGRAM = "tokens", "program"

Ciphertexts = Mapping[str, list[bytes]]
"""Name of an input or output -> the bytes of its ciphertexts."""


class StepServer:
    """Computes steps on keys and values that it keeps, and holds no secret key.

    The file holds the keys and values of all tokens so far, how many these are, and the identity
    of the program. It is replaced as a whole by ``keep``.

    Attributes:
        tokens: tokens whose keys and values are kept.
    """

    def __init__(self, step: Bundle, engine: RoleEngine[Any], place: Path) -> None:
        self._step, self._engine, self._place = step, engine, place
        self._states = {
            op.attributes["name"]: op
            for op in step.program.inputs
            if op.attributes.get("state")
        }  # fmt: skip
        self._kept: dict[str, list[Any]] = {}
        self._new: dict[str, list[Any]] = {}
        self.tokens = 0

    def begin(self, empty: Mapping[int, bytes]) -> None:
        """Keys and values of no token. ``empty`` maps each level of them to an encrypted zero."""
        for name, op in self._states.items():
            zero = empty[op.value.ciphertext.level or 0]
            loaded = self._engine.deserialize(zero)
            self._kept[name] = [loaded] * op.value.ciphertext.ciphertexts
        self.tokens = 0

    @property
    def levels(self) -> set[int]:
        """The levels of keys and values."""
        return {op.value.ciphertext.level or 0 for op in self._states.values()}

    def resume(self) -> None:
        """Keys and values from the file.

        Raises:
            AtlasError: the file is damaged, or of another program or other keys.
        """
        held = read_npz(self._place, LARGEST, what="the keys and values")
        program = bytes(held.pop(_PROGRAM, np.zeros(0, np.uint8))).decode("ascii", "replace")
        if program != self._step.manifest.program:
            raise AtlasError(
                f"{self._place} has the keys and values of another program",
                remedy="give the session of this program, or begin a new one",
            )
        tokens = held.pop(_COUNT, None)
        wanted = {
            f"{name}/{number}": (name, number)
            for name, op in self._states.items()
            for number in range(op.value.ciphertext.ciphertexts)
        }
        if tokens is None or tokens.shape != () or held.keys() != wanted.keys():
            raise AtlasError(f"{self._place} is damaged", remedy="begin a new session")
        self.tokens = int(tokens)
        self._kept = {name: [] for name in self._states}
        for key, (name, _) in wanted.items():
            one = self._engine.deserialize(held[key].tobytes())
            level = self._states[name].value.ciphertext.level
            if self._engine.level(one) != level:
                raise AtlasError(f"{self._place} is damaged", why=f"{key} is not at level {level}")
            self._kept[name].append(one)

    def step(self, query: Ciphertexts, public: Mapping[str, np.ndarray]) -> dict[str, list[bytes]]:
        """The encrypted answer at the next token. Its keys and values are lost if not kept.

        Args:
            query: the encrypted row of the token.
            public: its position, and the mask of the tokens up to it.

        Raises:
            AtlasError: a ciphertext of other keys, or the engine refused an op.
        """
        engine = self._engine
        given = {name: [engine.deserialize(one) for one in many] for name, many in query.items()}
        results = execute(engine, self._step.program, {**given, **self._kept}, public)
        self._new = {name: results.pop(name) for name in self._states}
        return {name: [engine.serialize(one) for one in many] for name, many in results.items()}

    def keep(self) -> None:
        """Keep the keys and values of the last step, in the file too.

        A client calls it once it has written down what it learned from the answer: a step that was
        kept is not done again.
        """
        self._kept, self._new = self._new, {}
        self.tokens += 1
        arrays = {
            f"{name}/{number}": np.frombuffer(self._engine.serialize(one), np.uint8)
            for name, many in self._kept.items()
            for number, one in enumerate(many)
        }
        arrays[_COUNT] = np.asarray(self.tokens)
        arrays[_PROGRAM] = np.frombuffer(self._step.manifest.program.encode(), np.uint8)
        write_private_arrays(self._place, arrays)
