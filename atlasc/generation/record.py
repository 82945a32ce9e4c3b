"""What a client keeps of a text, to go on later."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from atlasc.generation.sampling import Sampling
from atlasc.ir.files import Schema, Sha256

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
        sampling: how tokens are chosen.
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
    steps: Annotated[int, Field(ge=1)] | None = None
