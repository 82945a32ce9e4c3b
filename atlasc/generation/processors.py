"""What the settings of generation make of the logits of the next token, before one is chosen.

Each function is a class of ``transformers.generation.logits_process``, and :data:`PROCESSORS` has
their order. Scores are [vocabulary], float32 as there; the score of a token that is ruled out is
-inf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from atlasc.loading.generation.settings import Settings

NEVER = np.float32(-np.inf)


class Text(NamedTuple):
    """What is known of a text when its next token is chosen.

    Attributes:
        ids: the tokens so far, those of the public prefix and of the prompt included.
        prompt: how many of them the user gave.
        limit: tokens that the whole text may have; None if nothing bounds it.
        left: earlier tokens, which the model no longer sees.
    """

    ids: np.ndarray
    prompt: int
    limit: int | None = None
    left: int = 0


Processor = Callable[[Settings, Text, np.ndarray], np.ndarray]


def processed(settings: Settings, text: Text, logits: np.ndarray) -> np.ndarray:
    """The scores of all tokens [vocabulary], by the settings that count without a draw too."""
    scores = logits.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for process in PROCESSORS:
            scores = process(settings, text, scores)
    return scores


def _without(scores: np.ndarray, ids: Iterable[int]) -> np.ndarray:
    """The scores with some tokens ruled out; an id that is no token has no score."""
    ruled, found = scores.copy(), np.fromiter(ids, np.int64)
    ruled[found[found < len(scores)]] = NEVER
    return ruled


def _only(scores: np.ndarray, ids: Iterable[int]) -> np.ndarray:
    """Scores that leave nothing but some tokens."""
    left = np.full_like(scores, NEVER)
    left[list(ids)] = 0
    return left


def _with_bias(
    text: Text, scores: np.ndarray, biases: Iterable[tuple[tuple[int, ...], float]]
) -> np.ndarray:
    """A bias for the last token of each phrase whose other tokens are the last ones of the text."""
    bias, known = np.zeros_like(scores), text.ids.tolist()
    for phrase, value in biases:
        before = list(phrase[:-1])
        if not before or known[-len(before) :] == before:
            bias[phrase[-1]] += np.float32(value)
    return scores + bias


def sequence_bias(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Adds a bias to what would complete a phrase; of a phrase that is given twice, the last."""
    biases = dict(settings.sequence_bias)
    return _with_bias(text, scores, biases.items()) if biases else scores


def _penalised(scores: np.ndarray, ids: np.ndarray, penalty: float) -> np.ndarray:
    """Lowers the scores s of some tokens by a penalty p: s / p, or s · p below zero."""
    if penalty == 1:
        return scores
    found, lowered = np.unique(ids[ids < len(scores)]), scores.copy()
    of, factor = scores[found], np.float32(penalty)
    lowered[found] = np.where(of < 0, of * factor, of / factor)
    return lowered


def encoder_repetition_penalty(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Raises the scores of tokens of the prompt, which is what a decoder has for an encoder."""
    prompt = text.ids[: text.prompt]
    return _penalised(scores, prompt, 1 / settings.encoder_repetition_penalty)


def repetition_penalty(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Lowers the scores of all tokens that the text has, those of the prompt included."""
    return _penalised(scores, text.ids, settings.repetition_penalty)


def _without_repeated(text: Text, scores: np.ndarray, source: np.ndarray, size: int) -> np.ndarray:
    """Rules out what would complete a phrase of some tokens that ``source`` has."""
    if not size or len(source) < size or len(text.ids) < size - 1:
        return scores
    phrases = np.lib.stride_tricks.sliding_window_view(source, size)
    same = (phrases[:, :-1] == text.ids[len(text.ids) - size + 1 :]).all(axis=1)
    return _without(scores, phrases[same, -1])


def no_repeat_ngram_size(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Lets no phrase of so many tokens occur twice."""
    return _without_repeated(text, scores, text.ids, settings.no_repeat_ngram_size)


def encoder_no_repeat_ngram_size(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Lets no phrase of so many tokens of the prompt occur after it."""
    prompt = text.ids[: text.prompt]
    return _without_repeated(text, scores, prompt, settings.encoder_no_repeat_ngram_size)


def bad_words_ids(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Lets no phrase of a list occur; an end token alone is no such phrase."""
    ends = {(one,) for one in settings.eos_token_id}
    bad = [(phrase, -np.inf) for phrase in settings.bad_words_ids if phrase not in ends]
    return _with_bias(text, scores, bad) if bad else scores


def min_length(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Rules the end out before the text has so many tokens, or so many after the prompt."""
    least = settings.min_length
    if settings.min_new_tokens is not None:
        least = settings.min_new_tokens + text.prompt
    return _without(scores, settings.eos_token_id) if len(text.ids) < least else scores


def forced_bos_token_id(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Leaves one token after a first one."""
    first = settings.forced_bos_token_id
    return scores if first is None or len(text.ids) != 1 else _only(scores, [first])


def forced_eos_token_id(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Leaves some tokens at the last place that the text may have."""
    last = settings.forced_eos_token_id
    ends = bool(last) and text.limit is not None and len(text.ids) == text.limit - 1
    return _only(scores, last) if ends else scores


def remove_invalid_values(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Writes finite numbers: 0 for what is none, and the greatest and least ones for infinities."""
    return np.nan_to_num(scores) if settings.remove_invalid_values else scores


def exponential_decay_length_penalty(
    settings: Settings, text: Text, scores: np.ndarray
) -> np.ndarray:
    """Raises the score s of the end by |s| · (fᵏ - 1), k tokens behind a place after the prompt."""
    if settings.exponential_decay_length_penalty is None:
        return scores
    start, factor = settings.exponential_decay_length_penalty
    behind = len(text.ids) - start - text.prompt
    if behind <= 0:
        return scores
    raised, ends = scores.copy(), list(set(settings.eos_token_id))
    of = scores[ends]
    more = np.abs(of) * np.float32(_power(factor, behind) - 1)
    raised[ends] = of + np.where(np.isfinite(of), more, np.float32(0))
    return raised


def _power(factor: float, exponent: int) -> float:
    """A power; infinity where no number of the machine is so large."""
    return float(np.float64(factor) ** exponent)


def suppress_tokens(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Rules some tokens out."""
    return _without(scores, settings.suppress_tokens)


def begin_suppress_tokens(settings: Settings, text: Text, scores: np.ndarray) -> np.ndarray:
    """Rules some tokens out right behind the prompt, or behind a first token that is forced."""
    forced = settings.forced_bos_token_id is not None and text.prompt == 1
    begins = len(text.ids) == text.prompt + forced
    return _without(scores, settings.begin_suppress_tokens) if begins else scores


PROCESSORS: tuple[Processor, ...] = (
    sequence_bias,
    encoder_repetition_penalty,
    repetition_penalty,
    no_repeat_ngram_size,
    encoder_no_repeat_ngram_size,
    bad_words_ids,
    min_length,
    forced_bos_token_id,
    forced_eos_token_id,
    remove_invalid_values,
    exponential_decay_length_penalty,
    suppress_tokens,
    begin_suppress_tokens,
)
"""In the order of ``transformers``."""
