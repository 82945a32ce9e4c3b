"""The server of a text: it answers steps, and keeps the keys and values of all tokens so far."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.compilation.steps import ProgressCallback
from atlasc.files import write_private_arrays
from atlasc.generation.steps import name_of, public_at, public_tokens, window_of
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB, read_npz
from atlasc.ir.ops.rows import Cache
from atlasc.ir.types import CiphertextType
from atlasc.passes.generation.token_program import POSITION
from atlasc.program.engine import Ct, Engine
from atlasc.run.timing import Timing
from atlasc.runtime.engine import RoleEngine

CACHE = "cache.npz"
LARGEST = 256 * GIB
"""Greatest size in bytes of a file of keys and values."""
_TEXTS = ("program", "session", "request")


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


def first_states(
    engine: Engine[Ct],
    states: Mapping[str, CiphertextType],
    row: Ct,
    public: Mapping[str, np.ndarray],
) -> dict[str, list[Ct]]:
    """Keys and values before the first query: zero, which the row of a token minus itself is, plus
    those of the public prefix. The server has no key to encrypt them, and they need no secret.

    Args:
        engine: the engine of the server.
        states: name of keys or values -> their ciphertexts.
        row: the encrypted row of a token.
        public: name -> rows of the prefix, ``[1, heads, tokens, width]``; none without a prefix.
    """
    zero, found = engine.sub(row, row), dict[str, list[Ct]]()
    for name, kept in states.items():
        dropped = engine.drop_to(zero, kept.level or 0)
        found[name] = [dropped] * kept.ciphertexts
        if name in public:
            slots = Cache.of(kept.layout).pack(public[name])
            found[name] = [engine.add_plain(dropped, one) for one in slots]
    return found


@dataclass
class _Kept:
    """What the server keeps of a text.

    Attributes:
        tokens: tokens whose keys and values are kept, those of the public prefix included.
        session: name of the first query; empty before it.
        request: SHA-256 of the last query.
        answer: the answer to it.
        states: name of keys or values -> ciphertexts.
    """

    tokens: int
    session: str = ""
    request: str = ""
    answer: bytes = b""
    states: dict[str, list[Any]] = field(default_factory=dict)


class StepServer:
    """Answers the steps of one text, and holds no secret key.

    The folder has one file, which is replaced as a whole after each step: the encrypted keys and
    values, the last answer, and which session and program they are of. A query that is sent again
    gets the same answer, and nothing is appended twice.

    Args:
        server: the role, of the program of a step.
        folder: an empty folder, or that of a text. The caller locks it.

    Raises:
        AtlasError: the file is damaged, or of another program or other keys; or the program
            generates no text.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self._step, self._engine = server, server.bundle, server.engine
        self._place = folder / CACHE
        self._capacity = window_of(self._step)
        inputs = self._step.program.inputs
        self._states = {
            op.attributes["name"]: op.value.ciphertext
            for op in inputs
            if op.attributes.get("state")
        }  # fmt: skip
        self._public = {
            op.attributes["name"]: self._step.program.symbols[op.attributes["prefix"].name]
            for op in inputs
            if "prefix" in op.attributes
        }
        self._first = public_tokens(self._step)
        self._kept = self._read() if self._place.exists() else _Kept(self._first)

    @property
    def tokens(self) -> int:
        """Tokens whose keys and values are kept, those of the public prefix included."""
        return self._kept.tokens

    def answer(self, request: bytes | Path, progress: ProgressCallback | None = None) -> bytes:
        """The encrypted answer to the query of a token, which the client made.

        Args:
            request: the query.
            progress: called as ``progress(op, done, 100)`` before each op.

        Raises:
            AtlasError: the query of another program, of other keys or of another session; out of
                order; the keys and values are full; damaged bytes.
        """
        query = Message.read(request, "query", self._step)
        digest = hashlib.sha256(query.to_bytes()).hexdigest()
        if digest == self._kept.request:
            return self._kept.answer
        values, public = query.ciphertexts(self._engine)
        self._check(query, public)
        (row, *_) = next(iter(values.values()))
        states = self._kept.states
        if not states:
            states = first_states(self._engine, self._states, row, self._public)
        given = {**values, **states}
        results, _ = self._server.compute(given, public, progress)
        states = {name: results.pop(name) for name in self._states}
        made = (self._step, self._engine, results, query.count)
        answer = Message.of("answer", *made, query=query.query).to_bytes()
        session = self._kept.session or query.query
        self._keep(_Kept(self.tokens + 1, session, digest, answer, states))
        return answer

    def _check(self, query: Message, public: dict[str, np.ndarray]) -> None:
        """Refuse a query that is not of the next token of this session."""
        tokens, session = self._kept.tokens, self._kept.session
        place = int(np.argmax(public[POSITION]))
        wanted = public_at(self._step, place)
        if any(not np.array_equal(public[name], array) for name, array in wanted.items()):
            raise AtlasError(
                "the query is not of one token after others",
                why="its position and its mask do not belong together",
                remedy="make it with atlasc ask",
            )
        if session and query.query != name_of(session, place - self._first):
            raise AtlasError(
                "the query is of another session than the keys and values",
                where=str(self._place.parent),
                remedy="give the folder of its session; a new session has a new folder",
            )
        if tokens == self._capacity:
            raise AtlasError(
                f"the keys and values are full, with {tokens} tokens",
                where=str(self._place.parent),
                why=f"the program was compiled for {self._capacity}",
                remedy="begin a new session, or compile with a larger --sequence-length",
            )
        if place != tokens:
            again = ", and it is not the query that was answered" if place < tokens else ""
            raise AtlasError(
                f"the query is of token {place}, but the next one is {tokens}",
                where=str(self._place.parent),
                why=f"the keys and values are those of {tokens} tokens{again}",
                remedy="send the queries of a session in their order, each as the client made it",
            )

    def _keep(self, kept: _Kept) -> None:
        arrays = {
            f"{name}/{number}": np.frombuffer(self._engine.serialize(one), np.uint8)
            for name, many in kept.states.items()
            for number, one in enumerate(many)
        }
        texts = (self._step.manifest.program, kept.session, kept.request)
        for name, text in zip(_TEXTS, texts, strict=True):
            arrays[name] = np.frombuffer(text.encode(), np.uint8)
        arrays["answer"] = np.frombuffer(kept.answer, np.uint8)
        arrays["tokens"] = np.asarray(kept.tokens)
        write_private_arrays(self._place, arrays)
        self._kept = kept

    def _read(self) -> _Kept:
        held = read_npz(self._place, LARGEST, what="the keys and values")
        texts = [held.pop(name, np.zeros(0, np.uint8)).tobytes() for name in _TEXTS]
        program, session, request = (text.decode("ascii", "replace") for text in texts)
        if program != self._step.manifest.program:
            raise AtlasError(
                f"{self._place} has the keys and values of another program",
                remedy="give the folder of this program, or begin a new session",
            )
        tokens, answer = held.pop("tokens", None), held.pop("answer", None)
        wanted = {
            f"{name}/{number}": (name, number)
            for name, kept in self._states.items()
            for number in range(kept.ciphertexts)
        }
        if tokens is None or tokens.shape != () or answer is None or held.keys() != wanted.keys():
            raise AtlasError(f"{self._place} is damaged", remedy="begin a new session")
        if not self._first < tokens <= self._capacity:
            raise AtlasError(f"{self._place} is damaged", remedy="begin a new session")
        states: dict[str, list[Any]] = {name: [] for name in self._states}
        for key, (name, _) in wanted.items():
            one = self._engine.deserialize(held[key].tobytes())
            level = self._states[name].level
            if self._engine.level(one) != level:
                raise AtlasError(f"{self._place} is damaged", why=f"{key} is not at level {level}")
            states[name].append(one)
        return _Kept(int(tokens), session, request, answer.tobytes(), states)
