"""The tokens of a prompt: a text, token ids, or the messages of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from atlasc.bundle.folder import Bundle
from atlasc.generation.steps import window_of
from atlasc.ir.errors import AtlasError
from atlasc.loading.texts.chat import ChatMessage, messages_of
from atlasc.loading.texts.public_prefix import PublicPrefix, ids_after
from atlasc.loading.texts.tokens import require_characters

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Mapping[str, str]]"
"""A text, token ids, or messages: each has a ``role`` and its ``content``."""


def prompt_ids(step: Bundle, prompt: Prompt) -> list[int]:
    """The tokens of a prompt after the public prefix, if there is one.

    Raises:
        AtlasError: it is empty, or longer than the program was compiled for; or together with it
            the prefix has other tokens; or it is a conversation, and the tokenizer has no chat
            template.
    """
    prefix, most = step.public_prefix, window_of(step)
    ids = _ids(step, prompt, prefix)
    if prefix is not None:
        most -= len(prefix.ids)
    if not 1 <= len(ids) <= most:
        after = "" if prefix is None else f" after the public prefix of {len(prefix.ids)}"
        raise AtlasError(
            f"the prompt has {len(ids)} tokens",
            why=f"the program was compiled for 1 to {most}{after}",
            remedy="shorten it, or compile with a larger --sequence-length",
        )
    return [int(one) for one in ids]


def _ids(step: Bundle, prompt: Prompt, prefix: PublicPrefix | None) -> Sequence[int]:
    given: Any = prompt
    if isinstance(prompt, str):
        require_characters(prompt)
        if prefix is not None:
            return ids_after(prefix, prompt, step.model)
        return step.model.tokenize([prompt])[0]
    if len(prompt) == 0 or not isinstance(prompt[0], Mapping):
        found: Sequence[int] = given
        return found
    return _of_chat(step, messages_of(given), prefix)


def _of_chat(
    step: Bundle, messages: Sequence[ChatMessage], prefix: PublicPrefix | None
) -> Sequence[int]:
    """The tokens of a conversation, with what its template writes before an answer."""
    for one in messages:
        require_characters(one.content)
    ids = step.model.tokenize_chat(messages)
    if prefix is None:
        return ids
    known = len(prefix.ids)
    if tuple(ids[:known]) != prefix.ids:
        raise AtlasError(
            "the conversation does not begin with the public prefix of the program",
            why=f"the chat template writes other tokens than the {known} of the prefix",
            remedy="begin the conversation with the messages that --public-prefix was made of, or "
            "leave --chat out",
        )
    return ids[known:]
