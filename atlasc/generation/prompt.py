"""The tokens of a prompt: a text, token ids, or the messages of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.generation.steps import window_of
from atlasc.ir.errors import AtlasError
from atlasc.loading.texts.chat import ChatMessage, messages_of
from atlasc.loading.texts.public_prefix import PublicPrefix, ids_after
from atlasc.loading.texts.tokens import require_characters, special_of

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Mapping[str, str]]"
"""A text, token ids, or messages: each has a ``role`` and its ``content``."""


class Prompted(NamedTuple):
    """A prompt of a program.

    Attributes:
        ids: its tokens after the public prefix.
        messages: the conversation that they are of; empty if the prompt is none.
    """

    ids: list[int]
    messages: list[ChatMessage]


def prompted(step: Bundle, prompt: Prompt | Prompted) -> Prompted:
    """A prompt with its tokens; raises as :func:`prompt_ids`."""
    if isinstance(prompt, Prompted):
        return prompt
    messages = messages_of(prompt) if is_conversation(prompt) else []
    return Prompted(prompt_ids(step, prompt), messages)


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


def is_conversation(prompt: Prompt) -> bool:
    """Whether a prompt is messages, which a chat template writes."""
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def added_ids(step: Bundle, prompt: str | Sequence[int]) -> list[int]:
    """The tokens of a text that goes on another one: without those that the tokenizer puts at the
    beginning and at the end of a text.
    """
    if not isinstance(prompt, str):
        return [int(one) for one in prompt]
    require_characters(prompt)
    ids = np.array(step.model.tokenize([prompt])[0], np.int64)
    head, tail = special_of(step.model).ends(ids)
    found: list[int] = ids[head : len(ids) - tail].tolist()
    return found


def conversation_ids(step: Bundle, messages: Sequence[ChatMessage]) -> list[int]:
    """The tokens of a conversation after the public prefix, however many.

    Raises:
        AtlasError: as :func:`prompt_ids`; or a message of the user has an end token of the model.
    """
    ends = step.generation.eos_token_id
    for one in messages:
        require_characters(one.content)
        if one.role == "user" and (found := {*added_ids(step, one.content)} & {*ends}):
            raise AtlasError(
                f"a message of the user has the end token {min(found)} of the model in it",
                why="the chat template writes this token where a turn ends, so the model would "
                "read what follows it as another turn",
                remedy="leave the text of this token out of the message",
            )
    return [int(one) for one in _of_chat(step, messages, step.public_prefix)]


def _ids(step: Bundle, prompt: Prompt, prefix: PublicPrefix | None) -> Sequence[int]:
    given: Any = prompt
    if isinstance(prompt, str):
        require_characters(prompt)
        if prefix is not None:
            return ids_after(prefix, prompt, step.model)
        return step.model.tokenize([prompt])[0]
    if not is_conversation(prompt):
        found: Sequence[int] = given
        return found
    return conversation_ids(step, messages_of(given))


def _of_chat(
    step: Bundle, messages: Sequence[ChatMessage], prefix: PublicPrefix | None
) -> Sequence[int]:
    """The tokens of a conversation, with what its template writes before an answer."""
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
