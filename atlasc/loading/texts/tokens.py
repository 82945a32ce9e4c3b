"""The tokens that a tokenizer adds to texts, and the parts that a text or a pair consists of."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel


HALF = re.compile("[\ud800-\udfff]")
"""A surrogate that is alone: Python joins two of them to one character."""


@dataclass(frozen=True)
class Special:
    """The tokens that a tokenizer adds; none without a tokenizer.

    Attributes:
        single: [k] ids added to every text.
        pair: [k] ids added to every pair of texts; empty if nothing is put between them.
    """

    single: np.ndarray
    pair: np.ndarray

    def ends(self, ids: np.ndarray) -> tuple[int, int]:
        """Numbers of added tokens at the beginning and at the end of a text with tokens [m]."""
        return special_ends(ids, self.single)

    def parts(self, ids: np.ndarray) -> list[range]:
        """The places of the words in a text [m]: two ranges for a pair, otherwise one."""
        head, tail = self.ends(ids)
        end = len(ids) - tail
        middle = self.pair[head : len(self.pair) - tail]
        if len(middle):
            for start in range(head, end - len(middle)):
                after = start + len(middle)
                if np.array_equal(ids[start:after], middle):
                    return [range(head, start), range(after, end)]
        return [range(head, end)]


def require_characters(text: str, where: str = "") -> None:
    """Raise AtlasError for a text with half a character, which no tokenizer reads."""
    if (found := HALF.search(text)) is not None:
        raise AtlasError(
            f"a text has half a character: \\u{ord(found[0]):x}",
            where=where,
            why=f"character {found.start()} is half of a pair of UTF-16, without the other half",
            remedy='write the text again: text.encode("utf-16", "surrogatepass").decode("utf-16", '
            '"replace")',
        )


def special_of(model: LoadedModel) -> Special:
    """The tokens that the model's tokenizer adds to texts."""
    none = np.empty(0, np.int64)
    if model.tokenizer is None:
        return Special(none, none)
    single = np.array(model.tokenize([""])[0], np.int64)
    pair = none
    with suppress(AtlasError):  # a tokenizer may not support pairs
        pair = np.array(model.encode([""], [""])[IDS][0], np.int64)
    return Special(single, pair if len(pair) > len(single) else none)


def special_ends(ids: np.ndarray, special: np.ndarray) -> tuple[int, int]:
    """Numbers of tokens [m] of a text that the tokenizer added at the beginning and at the end.

    The tokenizer's own mask of special tokens is no help: it also marks unknown words.
    """
    m, k = len(ids), len(special)
    head = max(n for n in range(k + 1) if np.array_equal(ids[:n], special[:n]))
    rest = range(min(k - head, m - head) + 1)
    return head, max(n for n in rest if np.array_equal(ids[m - n :], special[k - n :]))


def shortened(
    ids: np.ndarray, special: Special, draw: float, beginning: int = 0
) -> np.ndarray | None:
    """Positions of the tokens [m] of a text that a shorter text keeps, in order; None if it has
    none.

    A shorter text keeps, beside the special tokens and the first ``beginning`` ones, from one token
    (one of each text of a pair) to all but one. The logarithm of its length grows with ``draw`` in
    [0, 1). A pair loses tokens at the end of both texts, in proportion.
    """
    free = (range(max(part.start, beginning), part.stop) for part in special.parts(ids))
    parts = [part for part in free if len(part)]
    words = sum(map(len, parts))
    added, most = len(ids) - words, len(ids) - 1
    least = added + max(len(parts), 1)
    if least > most:
        return None
    left = min(int(least * (len(ids) / least) ** draw), most) - added
    counts = [left]
    if len(parts) == 2:
        first = min(max(round(left * len(parts[0]) / words), 1), left - 1)
        counts = [first, left - first]
    dropped = [at for part, count in zip(parts, counts, strict=True) for at in part[count:]]
    return np.delete(np.arange(len(ids)), dropped)
