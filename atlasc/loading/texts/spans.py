"""Answers to questions about a text: the span of its tokens whose ends have the highest logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.loading import IDS, MASK

if TYPE_CHECKING:
    from atlasc.loading.inputs import Inputs
    from atlasc.loading.loaded_model import LoadedModel

ENDS = ("start_logits", "end_logits")
"""Outputs of a model that answers with a span."""
LONGEST = 30
"""Most tokens of a span."""


@dataclass(frozen=True)
class Span:
    """A part of the text that a question is about.

    Attributes:
        start, end: its first character in the text, and the one behind its last.
        text: these characters.
        score: the sum of both logits.
    """

    start: int
    end: int
    text: str
    score: float


def best_span(start: np.ndarray, end: np.ndarray, allowed: np.ndarray) -> tuple[int, int]:
    """The first and last token of the span of at most `LONGEST` tokens with the greatest sum of
    logits, [tokens] each, among the allowed tokens.
    """
    scores = np.where(allowed, start, -np.inf)[:, None] + np.where(allowed, end, -np.inf)
    spans = np.triu(np.ones_like(scores, dtype=bool))
    spans &= ~np.triu(spans, LONGEST)
    first, last = divmod(int(np.where(spans, scores, -np.inf).argmax()), len(end))
    return first, last


def answered(
    model: LoadedModel, inputs: Inputs, outputs: Mapping[str, np.ndarray]
) -> tuple[Span | None, ...] | None:
    """The span that answers each input, of a program's own model; as `spans_of`."""
    if not inputs.words:
        return None
    return spans_of(model.tokenizer, inputs.words, inputs.arrays, outputs)


def spans_of(
    tokenizer: Any,
    words: Sequence[Sequence[str]],
    arrays: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
) -> tuple[Span | None, ...] | None:
    """The span of each row; None for a row without an answer, or whose tokens were not made of its
    pair; None at all for other models, and without pairs of a question and a text.

    Args:
        tokenizer: gives the places of tokens; see ``ProgramTokenizer.places``.
        words: question and text of each row.
        arrays, outputs: of all rows, [N, tokens]; outputs of rows without an answer are NaN.
    """
    pairs = words and all(len(pair) == 2 for pair in words)
    if not pairs or not set(ENDS) <= set(outputs) or not hasattr(tokenizer, "places"):
        return None
    rows = zip(words, arrays[IDS], arrays[MASK], *(outputs[name] for name in ENDS), strict=True)
    return tuple(_span(tokenizer, *row) for row in rows)


def _span(
    tokenizer: Any,
    words: Sequence[str],
    ids: np.ndarray,
    mask: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> Span | None:
    question, text = words
    (kept,) = np.nonzero(mask)
    found = np.array(tokenizer.places(question, text, len(ids)), np.int64).reshape(-1, 3)
    same = np.array_equal(found[:, 0], ids[kept])
    allowed = found[:, 1] >= 0
    if not same or not allowed.any() or not np.isfinite((start[kept], end[kept])).all():
        return None
    first, last = best_span(start[kept], end[kept], allowed)
    begin, stop = int(found[first, 1]), int(found[last, 2])
    score = float(start[kept][first] + end[kept][last])
    return Span(begin, stop, text[begin:stop], score)
