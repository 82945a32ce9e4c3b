"""How a client chooses the next token."""

from __future__ import annotations

import secrets
from typing import Annotated

import numpy as np
from pydantic import Field

from atlasc.ir.files import Schema


class Sampling(Schema):
    """The choice of a token by its logits.

    Attributes:
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: choose among so many of the likeliest tokens; None: among all.
        seed: seed of the random numbers; None: a new one for each text. Those of a token depend on
            the seed and its place alone, so that a session that goes on chooses what it would have
            chosen.
    """

    temperature: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None

    def begun(self) -> Sampling:
        """The same with a seed, from the system's entropy if none was given."""
        new = secrets.randbits(63) if self.temperature and self.seed is None else self.seed
        return self.model_copy(update={"seed": new})

    def fits(self, begun: Sampling) -> bool:
        """Whether a text that was begun so goes on with this; its seed need not be given again."""
        return self in (begun, begun.model_copy(update={"seed": None}))

    def choose(self, logits: np.ndarray, place: int) -> int:
        """The id of the token at a place, by its logits [vocabulary]."""
        if not self.temperature:
            return int(logits.argmax())
        ids = np.argsort(-logits, kind="stable")[: self.top_k]
        scores = logits[ids] / self.temperature
        weights = np.exp(scores - scores.max())
        random = np.random.default_rng([self.seed or 0, place])
        return int(random.choice(ids, p=weights / weights.sum()))
