"""The settings by which a client chooses the tokens of a text: those of ``generation_config.json``.

Names and meanings are those of ``transformers.GenerationConfig``. Here are those that change a text
of one beam; :mod:`atlasc.generation.processors` has their formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import FailFast, Field

from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.files import MIB, Schema, read_json

MAX_SETTINGS = 8 * MIB
"""Greatest size in bytes of a file of settings."""
MAX_VALUES = 200_000
"""Greatest number of values in it: ids, and members."""
_MOST_IDS = 1 << 16
Id = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[tuple[Id, ...], Field(max_length=_MOST_IDS), FailFast()]
Phrase = Annotated[tuple[Id, ...], Field(min_length=1, max_length=1 << 12), FailFast()]
StopString = Annotated[str, Field(min_length=1, max_length=256)]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
Share = Annotated[float, Field(ge=0, le=1)]


class Settings(Schema):
    """How the tokens of a text are chosen. The defaults are those of ``model.generate``.

    Attributes:
        eos_token_id: tokens that end the text.
        stop_strings: texts that end it as soon as they are complete.
        max_new_tokens, max_length: greatest number of tokens after the prompt, and with it; the
            first counts if both are there.
        do_sample: draw tokens, instead of taking the likeliest.
        top_k: 0 draws among all tokens.
    """

    eos_token_id: Ids = ()
    stop_strings: Annotated[tuple[StopString, ...], Field(max_length=64), FailFast()] = ()
    max_new_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    max_length: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    min_new_tokens: Number | None = None
    min_length: Number = 0
    sequence_bias: Annotated[
        tuple[tuple[Phrase, float], ...], Field(max_length=_MOST_IDS), FailFast()
    ] = ()
    encoder_repetition_penalty: Factor = 1.0
    repetition_penalty: Factor = 1.0
    no_repeat_ngram_size: Number = 0
    encoder_no_repeat_ngram_size: Number = 0
    bad_words_ids: Annotated[tuple[Phrase, ...], Field(max_length=_MOST_IDS), FailFast()] = ()
    forced_bos_token_id: Id | None = None
    forced_eos_token_id: Ids = ()
    remove_invalid_values: bool = False
    exponential_decay_length_penalty: tuple[Number, Factor] | None = None
    suppress_tokens: Ids = ()
    begin_suppress_tokens: Ids = ()
    do_sample: bool = False
    temperature: Annotated[float, Field(gt=0, le=1e3)] = 1.0
    top_h: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Number = 50
    top_p: Share = 1.0
    min_p: Share | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    epsilon_cutoff: Annotated[float, Field(ge=0, lt=1)] = 0.0
    eta_cutoff: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def length(self, prompt: int) -> int | None:
        """The most tokens after a prompt of so many tokens; None if no setting says it."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        return None if self.max_length is None else max(self.max_length - prompt, 0)

    def require_vocabulary(self, size: int, where: object) -> None:
        """Raise AtlasError if a setting has an id that is no token of so many."""
        for name in IDS:
            wrong = [one for one in _ids(getattr(self, name)) if one >= size]
            if wrong:
                raise AtlasError(
                    f"{name} has the id {wrong[0]}, which is no token",
                    where=str(where),
                    why=f"the vocabulary has {counted(size, 'token', 'tokens')}",
                    remedy=f"correct {name} in generation_config.json, and compile again",
                )

    def __str__(self) -> str:
        """What differs from the likeliest token without an end, in one line."""
        shown = {name: value for name, value in self if value != _DEFAULTS[name]}
        drawn = {name: shown.pop(name) for name in (*DRAWING, "do_sample") if name in shown}
        if self.do_sample:
            drawn = {"temperature": self.temperature, "top_k": self.top_k} | drawn
            shown |= {name: value for name, value in drawn.items() if name != "do_sample"}
        how = "drawn" if self.do_sample else "the likeliest"
        return ", ".join([how, *(f"{name} {_short(value)}" for name, value in shown.items())])


IDS = (
    "eos_token_id", "sequence_bias", "bad_words_ids", "forced_bos_token_id", "forced_eos_token_id",
    "suppress_tokens", "begin_suppress_tokens",
)  # fmt: skip
"""Settings with ids of tokens."""
DRAWING = (
    "temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
)  # fmt: skip
"""Settings that count only where tokens are drawn."""
_DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


def _ids(value: Any) -> Iterator[int]:
    """Ids in the value of one of :data:`IDS`; a bias is a float."""
    if isinstance(value, tuple):
        for one in value:
            yield from _ids(one)
    elif type(value) is int:
        yield value


def _short(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    several = len(value) > 4 or any(isinstance(one, tuple) for one in value)
    return f"({counted(len(value), 'entry', 'entries')})" if several else " ".join(map(repr, value))


def read_settings(path: Path) -> Settings:
    """The settings in the client's part of a bundle; raises AtlasError for a damaged file."""
    return read_json(
        path, Settings, "the settings of generation", MAX_SETTINGS, values=MAX_VALUES,
        remedy="compile the model again", links=False,
    )  # fmt: skip


def end_alone(ends: Any) -> Settings:
    """The likeliest tokens up to one of the end tokens that a config names, as bundles without
    settings were used.
    """
    found = ends if isinstance(ends, list) else [ends]
    known = tuple(one for one in found if type(one) is int and 0 <= one < 2**31)
    return Settings(eos_token_id=known[:_MOST_IDS], top_k=0)
