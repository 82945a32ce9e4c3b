"""The server of a text: it answers queries of a prompt and of single tokens, and keeps the keys and
values of all tokens so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.files import write_private_arrays
from atlasc.generation.roles import Server
from atlasc.generation.steps import (
    TextBundles,
    name_of,
    public_at,
    public_tokens,
    successors,
    window_of,
)
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB, arrays_digest, read_npz
from atlasc.ir.layout import Layout
from atlasc.ir.ops.rows import Cache
from atlasc.ir.ops.tensors import POSITION
from atlasc.program.engine import Ct, Engine
from atlasc.progress import ProgressCallback
from atlasc.runtime.engine import RoleEngine
from atlasc.runtime.interface import Packed

CACHE = "cache.npz"
LARGEST = 256 * GIB
"""Greatest size in bytes of a file of keys and values."""
DAMAGED = "remove it and have all tokens computed again (--anew), or begin a new session"
_TEXTS = ("program", "session", "request")
_SEAL = "sha256"


def with_seal(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The members of a file, and the SHA-256 of all others. It tells a damaged file from a whole
    one; a damaged ciphertext decrypts to numbers as any other.
    """
    whole = {name: array for name, array in arrays.items() if name != _SEAL}
    return {**whole, _SEAL: np.frombuffer(bytes.fromhex(arrays_digest(whole)), np.uint8)}


def first_states(
    engine: Engine[Ct],
    states: Mapping[str, Packed],
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
        dropped = engine.drop_to(zero, kept.level)
        found[name] = [dropped] * kept.ciphertexts
        if name in public:
            slots = Cache.of(Layout.parse(kept.layout)).pack(public[name])
            found[name] = [engine.add_plain(dropped, one) for one in slots]
    return found


@dataclass(frozen=True)
class _Kept:
    """What the server keeps of a text, beside keys and values.

    Attributes:
        tokens: tokens whose keys and values are kept, those of the public prefix included.
        session: name of the first query; empty before it.
        request: SHA-256 of the last query.
        answer: the answer to it.
    """

    tokens: int
    session: str = ""
    request: str = ""
    answer: bytes = b""


class StepServer:
    """Answers the queries of one text, and holds no secret key.

    A text may be computed anew: the first query of the session that :func:`successors` names takes
    the place of all keys and values.

    The folder has one file, which is replaced as a whole after each answer: the encrypted keys and
    values, the last answer, and which session and program they are of. A query that is sent again
    gets the same answer, and nothing is appended twice. Without a folder all this is in memory
    alone, which saves writing megabytes or gigabytes for each token.

    Args:
        programs: the programs of the text.
        open_role: opens the role of a program when the first query for it comes. Only one is open
            at a time, because a prefill has many keys and a step has few.
        folder: an empty folder, or that of a text, which the caller locks; None writes nothing.

    Raises:
        AtlasError: the file is damaged, or of another program; or the program generates no text.
    """

    def __init__(
        self, programs: TextBundles, open_role: Callable[[Bundle], Server], folder: Path | None
    ) -> None:
        self._programs, self._step, self._open_role = programs, programs.step, open_role
        self._role: Server | None = None
        self._place = None if folder is None else folder / CACHE
        self._capacity = window_of(self._step)
        inputs = self._step.server.interface.inputs
        self._kinds = {one.name: one for one in inputs if one.state}
        arrays = self._step.server.arrays
        self._public = {one.name: arrays[one.prefix] for one in inputs if one.prefix}
        self._first = public_tokens(self._step)
        self._states: dict[str, list[Any]] = {}
        """Keys and values, as ciphertexts of the open role; empty if they are bytes alone."""
        self._held: dict[str, np.ndarray] = {}
        """Their bytes, until they are ciphertexts."""
        known = self._place is not None and self._place.exists()
        self._kept = self._read() if known else _Kept(self._first)

    @property
    def tokens(self) -> int:
        """Tokens whose keys and values are kept, those of the public prefix included."""
        return self._kept.tokens

    @property
    def session(self) -> str:
        """Name of the session of the keys and values; empty before its first query."""
        return self._kept.session

    def answer(self, request: bytes | Path, progress: ProgressCallback | None = None) -> bytes:
        """The encrypted answer to the query of a token, or of a prompt, which the client made.

        Args:
            request: the query.
            progress: called as ``progress(op, done, 100)`` before each op.

        Raises:
            AtlasError: the query of another program, of other keys or of another session; out of
                order; the keys and values are full, or of other keys; damaged bytes.
        """
        program = self._programs.of_message(request)
        query = Message.read(request, "query", program)
        if query.digest == self._kept.request:
            return self._kept.answer
        kept = self._kept
        if kept.session and query.query in successors(kept.session):
            kept = _Kept(self._first)
        role = self._role_of(program)
        values, public = query.ciphertexts(role.engine)
        tokens = self._tokens_after(kept, program, query, public)
        if program is self._step:
            (row, *_) = next(iter(values.values()))
            values |= self._states_of(kept, role.engine, row)
        results, _ = role.compute(values, public, progress)
        states = {name: results.pop(name) for name in self._kinds}
        made = (program, role.engine, results, query.count)
        answer = Message.of("answer", *made, query=query.query).to_bytes()
        session = kept.session or query.query
        self._keep(_Kept(tokens, session, query.digest, answer), states)
        return answer

    def _role_of(self, program: Bundle) -> Server:
        """The role of a program, which is opened in the place of another."""
        if self._role is None or self._role.bundle is not program:
            if self._place is None and self._states:
                self._held = self._bytes(self._states)
            self._role, self._states = None, {}  # its keys leave the memory first
            self._role = self._open_role(program)
        return self._role

    def _states_of(self, kept: _Kept, engine: RoleEngine[Any], row: Any) -> dict[str, list[Any]]:
        """Keys and values of the tokens so far."""
        if not kept.request:
            return first_states(engine, self._kinds, row, self._public)
        if not self._states:
            self._states = self._read_states(engine)
        return self._states

    def _tokens_after(
        self, kept: _Kept, program: Bundle, query: Message, public: Mapping[str, np.ndarray]
    ) -> int:
        """The tokens after a query. Refuses one that is not of the next token of this session, or
        of the prompt that begins it.
        """
        tokens, session = kept.tokens, kept.session
        of_prompt = program is not self._step
        place = int(np.argmax(public[POSITION]))
        wanted = public_at(program, place)
        if any(not np.array_equal(public[name], array) for name, array in wanted.items()):
            raise AtlasError(
                "the query is not of one token after others",
                why="its position and its mask do not belong together",
                remedy="make it with atlasc ask",
            )
        if session and query.query != name_of(session, 0 if of_prompt else place - self._first):
            raise AtlasError(
                "the query is of another session than the keys and values",
                where=self._where,
                remedy="give the folder of its session; a new session has a new folder",
            )
        if of_prompt and tokens:
            raise AtlasError(
                f"the query is of a prompt, but the keys and values are those of {tokens} tokens",
                where=self._where,
                why="a prompt begins a session, and this is not the query that was answered",
                remedy="send the queries of a session in their order, each as the client made it",
            )
        if tokens == self._capacity:
            raise AtlasError(
                f"the keys and values are full, with {tokens} tokens",
                where=self._where,
                why=f"the program was compiled for {self._capacity}",
                remedy="begin a new session, or compile with a larger --sequence-length",
            )
        if place != tokens and not of_prompt:
            again = ", and it is not the query that was answered" if place < tokens else ""
            why = f"the keys and values are those of {tokens} tokens{again}"
            remedy = "send the queries of a session in their order, each as the client made it"
            if not session:
                why = (
                    "no keys and values of this session are here: they were dropped, or never made"
                )
                remedy += "; or let the client send all tokens again, encrypted (--anew)"
            raise AtlasError(
                f"the query is of token {place}, but the next one is {tokens}",
                where=self._where, why=why, remedy=remedy,
            )  # fmt: skip
        return place + 1

    def _bytes(self, states: Mapping[str, list[Any]]) -> dict[str, np.ndarray]:
        """Keys and values as members of the file."""
        assert self._role is not None, "they are ciphertexts of the open role"
        return {
            f"{name}/{number}": np.frombuffer(self._role.engine.serialize(one), np.uint8)
            for name, many in states.items()
            for number, one in enumerate(many)
        }

    def _keep(self, kept: _Kept, states: dict[str, list[Any]]) -> None:
        if self._place is not None:
            arrays = self._bytes(states)
            texts = (self._step.manifest.program, kept.session, kept.request)
            for name, text in zip(_TEXTS, texts, strict=True):
                arrays[name] = np.frombuffer(text.encode(), np.uint8)
            arrays["answer"] = np.frombuffer(kept.answer, np.uint8)
            arrays["tokens"] = np.asarray(kept.tokens)
            write_private_arrays(self._place, with_seal(arrays))
        self._kept, self._states, self._held = kept, states, {}

    @property
    def _where(self) -> str:
        return "" if self._place is None else str(self._place.parent)

    def _file(self) -> dict[str, np.ndarray]:
        """The arrays of the file, which have the right names."""
        assert self._place is not None, "only a file has arrays that are not held"
        held = read_npz(self._place, LARGEST, what="the keys and values", remedy=DAMAGED)
        program = held.get("program", np.zeros(0, np.uint8)).tobytes().decode("ascii", "replace")
        if program != self._step.manifest.program:
            raise AtlasError(
                f"{self._place} has the keys and values of another program",
                remedy="give the folder of this program, or begin a new session",
            )
        if held.keys() != {*_TEXTS, "answer", "tokens", _SEAL, *self._members()}:
            raise self._damaged()
        if not np.array_equal(with_seal(held)[_SEAL], held[_SEAL]):
            raise self._damaged("its SHA-256 is not the one that it has")
        return held

    def _members(self) -> dict[str, tuple[str, int]]:
        """Member of the file with a ciphertext -> its name and number."""
        return {
            f"{name}/{number}": (name, number)
            for name, kind in self._kinds.items()
            for number in range(kind.ciphertexts)
        }

    def _read(self) -> _Kept:
        held = self._held = self._file()
        session, request = (held[name].tobytes().decode("ascii", "replace") for name in _TEXTS[1:])
        tokens = held["tokens"]
        whole = tokens.shape == () and tokens.dtype.kind in "iu"
        if not request or not whole or not self._first < tokens <= self._capacity:
            raise self._damaged()
        return _Kept(int(tokens), session, request, held["answer"].tobytes())

    def _read_states(self, engine: RoleEngine[Any]) -> dict[str, list[Any]]:
        held, states = self._held or self._file(), {name: list[Any]() for name in self._kinds}
        self._held = {}
        for key, (name, _) in self._members().items():
            one, level = engine.deserialize(held[key].tobytes()), self._kinds[name].level
            if engine.level(one) != level:
                raise self._damaged(f"{key} is not at level {level}")
            states[name].append(one)
        return states

    def _damaged(self, why: str = "") -> AtlasError:
        return AtlasError(f"{self._place} is damaged", why=why, remedy=DAMAGED)
