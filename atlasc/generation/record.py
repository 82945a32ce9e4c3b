"""What a client keeps of a text, to go on later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from atlasc.files import new_folder, write_private
from atlasc.generation.sampling import Sampling
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, Schema, Sha256, read_json
from atlasc.loading.texts.chat import ChatMessage

RECORD, REQUEST = "session.json", "request.safetensors"
"""Files in the folder of a text: the record, and the query that waits for its answer."""
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Record(Schema):
    """What the client knows of a text.

    Attributes:
        program: identity of the step's program.
        keys: identity of the key set.
        session: name of the session.
        public: digest of the public prefix; empty if there is none.
        prompt: number of tokens before the answer that is written: those of the public prefix, of
            earlier turns and of the prompt.
        ids: these tokens, and those of the answer.
        messages: the conversation before the answer; empty if the text is none.
        prefill: whether the first query has several tokens at once.
        first: number of tokens that the client knew when it made the first query; 0: ``prompt``.
        left: tokens after the public prefix that have left the keys and values.
        window: tokens that stay when the keys and values are full; None: nothing leaves.
        done: number of tokens whose keys and values the server has, and whose answers were read.
        sampling: what the user says of the choice of tokens.
        settings: SHA-256 of the file of the bundle that says the rest; empty if there is none.
        steps: tokens after the prompt that are asked for, wherever the model ends the text; None:
            until it ends, which the server then sees.
    """

    format: Literal[2] = 2
    program: Sha256
    keys: str
    session: _Hex
    public: str = ""
    prompt: Annotated[int, Field(ge=1)]
    ids: list[Annotated[int, Field(ge=0, lt=2**31)]]
    messages: list[ChatMessage] = Field(default_factory=list)
    prefill: bool = False
    first: Annotated[int, Field(ge=0)] = 0
    left: Annotated[int, Field(ge=0)] = 0
    window: Annotated[int, Field(ge=1)] | None = None
    done: Annotated[int, Field(ge=0)] = 0
    sampling: Sampling
    settings: str = ""
    steps: Annotated[int, Field(ge=1)] | None = None

    @property
    def begun(self) -> int:
        """Tokens that the client knew when it made the first query."""
        return self.first or self.prompt

    @property
    def asked(self) -> int:
        """Tokens before the answer, less those that have left."""
        return self.prompt - self.left

    def held(self, public: int) -> list[int]:
        """The tokens that have not left; of them the first ``public`` are the public prefix."""
        return [*self.ids[:public], *self.ids[public + self.left :]]

    def fits(self, public: Sequence[int], window: int) -> bool:
        """Whether the numbers can be those of one session of a program of so many tokens."""
        least, known = len(public), len(self.ids)
        begins = self.ids[:least] == [*public] and least < self.prompt <= known
        held = known - self.left
        begun = least < self.begun <= min(held, window)
        whole = not (self.prefill and 0 < self.done < self.begun)
        return begins and begun and whole and least <= self.done < held


class Kept:
    """Record and waiting query of a text, in its folder; or in memory alone, so that nothing of a
    text that nobody goes on with is ever written.

    Args:
        folder: None for memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder, self._request = folder, b""

    def __str__(self) -> str:
        return "this text" if self.folder is None else str(self.folder)

    @property
    def known(self) -> bool:
        """Whether the text was begun."""
        return self.folder is not None and self.folder.exists()

    def read(self) -> Record:
        """The record of a text that was begun."""
        assert self.folder is not None, "a text in memory is begun, not read"
        place, remedy = self.folder / RECORD, "begin a new session"
        return read_json(place, Record, "the session", 64 * MIB, remedy=remedy, links=False)

    def require_same(self, facts: Mapping[str, bool]) -> None:
        """Raise AtlasError if a fact does not hold: what differs -> whether it is the same."""
        for what, same in facts.items():
            if not same:
                raise AtlasError(
                    f"{self} is a session of {what}",
                    remedy="go on with what it began with, or give a new folder",
                )

    def begin(self, record: Record) -> None:
        """Keep the first record."""
        if self.folder is not None:
            with new_folder(self.folder, private=True) as draft:
                (draft / RECORD).write_text(record.model_dump_json() + "\n", encoding="utf-8")

    def save(self, record: Record) -> None:
        """Keep a later record."""
        if self.folder is not None:
            text, place = record.model_dump_json() + "\n", self.folder / RECORD
            write_private(place, lambda draft: draft.write_text(text, encoding="utf-8"))

    @property
    def request(self) -> Path | bytes | None:
        """The query that waits for its answer."""
        if self.folder is None:
            return self._request or None
        return self.folder / REQUEST if (self.folder / REQUEST).exists() else None

    def hold(self, request: bytes) -> None:
        """Keep a query, before it leaves."""
        self._request = request
        if self.folder is not None:
            write_private(self.folder / REQUEST, lambda draft: draft.write_bytes(request))

    def release(self) -> None:
        """Forget the query, whose answer was read."""
        self._request = b""
        if self.folder is not None:
            (self.folder / REQUEST).unlink()
