"""A text, and where the model ends it: behind an end token, or where a stop string is complete.

Stop strings are searched as ``model.generate`` of transformers does: in the text of the tokens,
those of the prompt and special ones included. A string may end in the middle of a token, but it has
to end in the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from atlasc.generation.turns import common
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.settings import Settings
from atlasc.loading.loaded_model import LoadedModel


class Generated(NamedTuple):
    """A text that was generated.

    Attributes:
        prompt, ids: tokens of the prompt after the public prefix, those of earlier turns included,
            and the tokens after it.
        text: the text after the prompt; None if the program has no tokenizer.
        ended: whether the model has ended it: its last token is one of the end tokens, or completes
            one of the stop strings.
    """

    prompt: list[int]
    ids: list[int]
    text: str | None
    ended: bool = False

    def __repr__(self) -> str:
        """Lengths alone: the text is private."""
        return f"<Generated: {len(self.ids)} tokens after {len(self.prompt)} of the prompt>"


class Ends:
    """The end tokens and the stop strings of a text.

    Args:
        settings: name them.
        model: whose tokenizer tells the text of tokens; it is loaded for stop strings alone.

    Raises:
        AtlasError: there are stop strings and no tokenizer.
    """

    def __init__(self, settings: Settings, model: LoadedModel) -> None:
        self._tokens, self._strings = frozenset(settings.eos_token_id), settings.stop_strings
        self._tokenizer: Any = model.tokenizer if self._strings else None
        if self._strings and self._tokenizer is None:
            raise AtlasError(
                "stop_strings cannot be applied without a tokenizer",
                where=str(model.source),
                why="it tells which tokens complete a string",
                remedy="give the tokenizer, or delete stop_strings in generation_config.json, and "
                "compile again",
            )
        # A token has a byte or more. The first one of a text may lack the space before it.
        self._longest = 1 + max((len(one.encode()) for one in self._strings), default=0)
        self._completes = cache(self._completed)

    def place(self, ids: Sequence[int], prompt: int) -> int | None:
        """The place behind the token that ends a text after so many tokens of the prompt; None
        before that.
        """
        places = range(prompt + 1, len(ids) + 1)
        return next((place for place in places if self._is_end(ids[:place])), None)

    def _is_end(self, ids: Sequence[int]) -> bool:
        if ids[-1] in self._tokens:
            return True
        return bool(self._strings) and self._completes(tuple(ids[-self._longest :]))

    def _completed(self, ids: tuple[int, ...]) -> bool:
        """Whether the last of some tokens completes a stop string."""
        before, text = self._tokenizer.decode(ids[:-1]), self._tokenizer.decode(ids)
        # A character of several bytes may have several tokens: the last one replaces its sign.
        known = common(before, text)
        return any(text.find(one, max(0, known + 1 - len(one))) >= 0 for one in self._strings)
