"""The tokenizer of a compiled program: the model's tokenizer, read without transformers.

A tokenizer of transformers wraps a tokenizer of the library ``tokenizers`` and adds a few facts. A
bundle keeps both, so that a client needs only ``tokenizers``. A tokenizer of another kind is kept
as it is, and its client needs transformers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import KIB, MIB, Schema, open_plain, read_json
from atlasc.loading import IDS, SEGMENTS
from atlasc.loading.texts.chat import MAX_TEMPLATE, ChatMessage, ChatTemplate, rendered, template_of

if TYPE_CHECKING:
    import tokenizers

BACKEND, FACTS = "tokenizer.json", "tokenizer_facts.json"
MOST_FACTS = 8 * MAX_TEMPLATE
"""Greatest size in bytes of the file of facts: a character of a template may take six bytes."""
MAX_TOKENIZER = 256 * MIB
"""Greatest size in bytes of a file of a tokenizer."""
TOKENIZER_REMEDY = "copy the tokenizer files of the original model again"
_SAMPLES = ("a cat, a café\tand 12 [MASK] <s> of them!", "", "  Two words ", "x" * 40)
"""Texts on which the two tokenizers are compared."""


class TokenizerFacts(Schema):
    """Facts that transformers adds to a tokenizer of the library ``tokenizers``.

    Attributes:
        names: names of the arrays that it makes of a text.
        splits_special: whether special tokens inside a text are treated as plain text.
        truncation_side: the end at which longer pairs lose tokens.
        prompt: what is written before each text.
        chat: the template of conversations.
        padding_side, pad_token_id, pad_token_type_id, model_max_length: see transformers.
    """

    names: list[str]
    splits_special: bool
    truncation_side: Literal["left", "right"]
    padding_side: Literal["left", "right"]
    pad_token_id: int | None
    pad_token_type_id: int
    model_max_length: int | None
    prompt: str = ""
    chat: ChatTemplate | None = None


class ProgramTokenizer:
    """Token ids of texts and of pairs, equal to those of transformers.

    Attributes:
        facts: see :class:`TokenizerFacts`.
        unk_token_id: token of all unknown words; None if it is not known.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, facts: TokenizerFacts, unknown: int | None = None
    ) -> None:
        self.facts, self._backend, self._lock = facts, backend, threading.Lock()
        self.unk_token_id = unknown

    def __getattr__(self, name: str) -> Any:
        if name in TokenizerFacts.model_fields:
            return getattr(self.facts, name)
        raise AttributeError(name)

    def __call__(
        self,
        texts: Sequence[str],
        seconds: Sequence[str] | None = None,
        *,
        truncation: str | bool = False,
        max_length: int | None = None,
        verbose: bool = True,
    ) -> dict[str, list[list[int]]]:
        """Tokenize as the tokenizer of transformers does, with these arguments."""
        texts = [self.facts.prompt + text for text in texts]
        given: list[Any] = texts if seconds is None else list(zip(texts, seconds, strict=True))
        found = self._encoded(given, truncation, max_length)
        columns = {IDS: [one.ids for one in found], SEGMENTS: [one.type_ids for one in found]}
        return {name: column for name, column in columns.items() if name in self.facts.names}

    def chat_ids(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a conversation, as ``apply_chat_template`` of transformers gives them, up to
        where the assistant answers.
        """
        (found,) = self._encoded([rendered(self.facts.chat, messages)], False, None, special=False)
        ids: list[int] = found.ids
        return ids

    def places(self, first: str, second: str, length: int) -> list[list[int]]:
        """Id, start and end of each token of a pair that is cut to ``length`` tokens: the start and
        the end are characters of the second text; of other tokens both are -1.
        """
        (found,) = self._encoded([(self.facts.prompt + first, second)], "longest_first", length)
        parts = zip(found.ids, found.offsets, found.sequence_ids, strict=True)
        return [[id_, *(place if part == 1 else (-1, -1))] for id_, place, part in parts]

    def _encoded(
        self, given: list[Any], truncation: str | bool, length: int | None, special: bool = True
    ) -> list[Any]:
        """Encodings of the library ``tokenizers``, with special tokens around each text or not."""
        with self._lock:  # the settings for cutting are shared state
            self._backend.encode_special_tokens = self.facts.splits_special
            if truncation and length is not None:
                self._backend.enable_truncation(
                    length, strategy=str(truncation), direction=self.facts.truncation_side
                )
            else:
                self._backend.no_truncation()
            found: list[Any] = self._backend.encode_batch(given, add_special_tokens=special)
        return found

    def write(self, folder: Path) -> None:
        """Write the files from which :func:`read_tokenizer` makes it again."""
        (folder / BACKEND).write_text(self._backend.to_str(), encoding="utf-8")
        facts = self.facts.model_dump_json(exclude_defaults=True)
        (folder / FACTS).write_text(facts + "\n", encoding="utf-8")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        found: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return found


def require_library() -> None:
    """Raise AtlasError unless the library ``tokenizers`` is installed; it is not imported."""
    why = "it is on no path of this Python"
    try:
        found = find_spec("tokenizers")
    except ImportError as error:
        found, why = None, str(error)
    if found is None:
        raise AtlasError(
            "the model reads texts, but the library tokenizers is not installed",
            why=why,
            remedy="pip install tokenizers, or give token ids",
        )


def read_tokenizer(folder: Path) -> ProgramTokenizer | None:
    """The tokenizer that :func:`write_tokenizer` wrote; None if there is none.

    Raises:
        AtlasError: its files cannot be read, or the library ``tokenizers`` is missing.
    """
    if not (folder / FACTS).is_file():
        return None
    facts = read_json(
        folder / FACTS, TokenizerFacts, "the facts of a tokenizer", MOST_FACTS, values=KIB,
        remedy=TOKENIZER_REMEDY, links=False,
    )  # fmt: skip
    require_library()
    from tokenizers import Tokenizer

    with open_plain(folder / BACKEND, MAX_TOKENIZER, links=False) as file:
        content = file.read()
    with explained("the model's tokenizer cannot be read", folder, TOKENIZER_REMEDY):
        backend = Tokenizer.from_buffer(content)
        backend.no_padding()
        return ProgramTokenizer(backend, facts)


def write_tokenizer(tokenizer: Any, folder: Path) -> bool:
    """Write the tokenizer of a model for its client, and return whether that was possible.

    It is possible if the tokenizer wraps one of the library ``tokenizers``, and both give the same
    tokens.
    """
    known = copied(tokenizer)
    if known is not None:
        known.write(folder)
    return known is not None


def prompted(tokenizer: Any, prompt: str) -> ProgramTokenizer:
    """The tokenizer of transformers that writes a prompt before each text.

    Raises:
        AtlasError: the client of a program could not read it.
    """
    known = copied(tokenizer)
    if known is None:
        raise AtlasError(
            f"the prompt {prompt[:40]!r} cannot be written before texts by this tokenizer",
            why=f"a {type(tokenizer).__name__} does not wrap one of the library tokenizers",
            remedy="delete default_prompt_name in config_sentence_transformers.json, and write the "
            "prompt before each text",
        )
    known.facts = known.facts.model_copy(update={"prompt": prompt})
    return known


def copied(tokenizer: Any) -> ProgramTokenizer | None:
    """A tokenizer without transformers; None if it would give other tokens."""
    from tokenizers import Tokenizer

    if isinstance(tokenizer, ProgramTokenizer):
        return tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        return None
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_padding()
    copy.no_truncation()
    found = ProgramTokenizer(copy, facts_of(tokenizer), tokenizer.unk_token_id)
    return found if _agree(tokenizer, found) else None


def facts_of(tokenizer: Any) -> TokenizerFacts:
    """The facts of a tokenizer of transformers."""
    most = tokenizer.model_max_length
    return TokenizerFacts(
        names=[name for name in (IDS, SEGMENTS) if name in tokenizer([""], verbose=False)],
        splits_special=bool(tokenizer.split_special_tokens),
        truncation_side=tokenizer.truncation_side,
        padding_side=tokenizer.padding_side,
        pad_token_id=tokenizer.pad_token_id,
        pad_token_type_id=tokenizer.pad_token_type_id,
        model_max_length=most if type(most) is int and most < 1 << 31 else None,
        chat=template_of(tokenizer),
    )


def _agree(first: Any, second: ProgramTokenizer) -> bool:
    texts = list(_SAMPLES)
    cut: dict[str, Any] = {"truncation": "longest_first", "max_length": 12}
    calls: list[tuple[tuple[list[str], ...], dict[str, Any]]]
    calls = [((texts,), {}), ((texts, texts[::-1]), {}), ((texts, texts), cut)]
    for arguments, options in calls:
        try:
            expected = first(*arguments, verbose=False, **{"truncation": False, **options})
        except Exception:  # it may not support pairs
            continue
        found = second(*arguments, **options)
        names = [name for name in (IDS, SEGMENTS) if name in expected]
        if names != list(found) or any(list(expected[n]) != found[n] for n in names):
            return False
    return True
