"""How a client chooses the next token: by the settings of the model's folder, unless its user says
otherwise.
"""

from __future__ import annotations

import secrets
from typing import Annotated

import numpy as np
from pydantic import Field

from atlasc.generation.processors import Text, processed
from atlasc.generation.warpers import probabilities, warped
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import Schema
from atlasc.loading.generation.settings import Settings

PLAIN = Settings()
"""The likeliest token; where a temperature is given, drawn as transformers does by default."""


class Sampling(Schema):
    """What the user of a client says of the choice of tokens. None: as the model's folder says.

    Attributes:
        temperature: divides the logits; 0 takes the likeliest token.
        top_k: choose among so many of the likeliest tokens.
        top_p: choose among the likeliest tokens whose probabilities are together so large.
        seed: seed of the random numbers; None: a new one for each text. Those of a token depend on
            the seed and its place alone, so that a session that goes on chooses what it would have
            chosen.
    """

    temperature: Annotated[float, Field(ge=0, le=1e3)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None

    def over(self, settings: Settings) -> Settings:
        """The settings of a folder with what the user says in their place."""
        given = {"top_k": self.top_k, "top_p": self.top_p, "temperature": self.temperature or None}
        found = {name: value for name, value in given.items() if value is not None}
        if self.temperature is not None:
            found["do_sample"] = self.temperature > 0
        return settings.model_copy(update=found)

    def begun(self, settings: Settings = PLAIN) -> Sampling:
        """The same with a seed, from the system's entropy if none was given."""
        draws = self.over(settings).do_sample
        new = secrets.randbits(63) if draws and self.seed is None else self.seed
        return self.model_copy(update={"seed": new})

    def fits(self, begun: Sampling) -> bool:
        """Whether a text that was begun so goes on with this; its seed need not be given again."""
        return self in (begun, begun.model_copy(update={"seed": None}))

    def choose(self, logits: np.ndarray, text: Text, settings: Settings = PLAIN) -> int:
        """The id of the token after a text, by its logits [vocabulary].

        Raises:
            AtlasError: a setting has an id that is no token, or the settings rule out all tokens.
        """
        settings.require_vocabulary(len(logits), "")
        used = self.over(settings)
        scores = processed(used, text, logits)
        if not scores.max() > -np.inf:
            raise AtlasError(
                f"the settings of generation leave no token at place {len(text.ids)}",
                why=f"they are: {used}",
                remedy="correct generation_config.json, and compile again",
            )
        if not used.do_sample:
            return int(scores.argmax())
        likely = probabilities(warped(used, scores).astype(np.float64))
        random = np.random.default_rng([self.seed or 0, text.left + len(text.ids)])
        return int(random.choice(len(likely), p=likely))
