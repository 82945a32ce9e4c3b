"""What a client keeps of a text, to go on later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from atlasc.files import new_folder, write_private
from atlasc.generation.sampling import Sampling
from atlasc.ir.files import MIB, Schema, Sha256, read_json

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
        prompt: number of tokens of the public prefix and of the prompt.
        ids: tokens of the public prefix, of the prompt and of the text after it.
        prefill: whether the first query has all tokens of the prompt.
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
    prefill: bool = False
    done: Annotated[int, Field(ge=0)] = 0
    sampling: Sampling
    settings: str = ""
    steps: Annotated[int, Field(ge=1)] | None = None


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
