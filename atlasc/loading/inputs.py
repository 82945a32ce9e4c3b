"""Named arrays for a model, and the checks that they must pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from atlasc.client.checks import faults, shapes
from atlasc.ir.errors import AtlasError, listed
from atlasc.ir.files import arrays_digest
from atlasc.loading import IDS, POSITIONS, SEGMENTS

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel, Shape


TABLES = {
    IDS: ("token id {} is not in the model's vocabulary", "vocab_size",
          "use the tokenizer that belongs to the model"),
    SEGMENTS: ("the model has no segment {}", "type_vocab_size",
               "leave token_type_ids out: a model without segments reads a pair as one text, as "
               "its tokenizer joins it"),
    POSITIONS: ("the model has no position {}", "max_position_embeddings",
                "leave position_ids out: the model then counts tokens itself"),
}  # fmt: skip
"""Input with one number per token -> message for a number outside the model's table, the config's
name for the size of the table, and the remedy."""


@dataclass(frozen=True, repr=False)
class Inputs:
    """Inputs of one model, one per row.

    Attributes:
        arrays: name of a model input -> [N, ...]. `input_ids`, `attention_mask` (1 keep, 0
            padding) and others with one number per token, such as `token_type_ids`, are int64
            [N, n]; `pixel_values` is float32 [N, C, H, W].
        names: names of the rows for messages: "texts.txt:3", a file name, "digits.npz[7]".
        labels: [N] the true classes, as integers or names, or numbers to predict; None if the data
            has none.
        tokens: [N] tokens of each text before texts were cut; None if none was cut.
        notes: what was left out of the data, as pairs of a headline and details; see ``tell``.
        faults: [N] why a row has no input (its arrays then hold only padding or NaN), empty if it
            has one; () if all rows have one.
        read: how a table was read, in words: its rows, columns and quoting; empty for other data.
        words: [N] each text, or both texts of a pair; () if none were given.
    """

    arrays: dict[str, np.ndarray]
    names: tuple[str, ...]
    labels: np.ndarray | None = None
    tokens: np.ndarray | None = None
    notes: tuple[tuple[str, str], ...] = ()
    faults: tuple[str, ...] = ()
    read: str = ""
    words: tuple[tuple[str, ...], ...] = ()

    def __repr__(self) -> str:
        """Shapes alone: inputs are private."""
        return f"<Inputs: {shapes(self.arrays)}>"

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.names)

    def take(self, indices: Sequence[int] | np.ndarray) -> Inputs:
        """The rows at the indices, in the order of the indices."""
        rows = [int(index) for index in indices]
        return Inputs(
            {name: array[rows] for name, array in self.arrays.items()},
            tuple(self.names[row] for row in rows),
            None if self.labels is None else self.labels[rows],
            None if self.tokens is None else self.tokens[rows],
            self.notes,
            tuple(self.faults[row] for row in rows) if self.faults else (),
            self.read,
            tuple(self.words[row] for row in rows) if self.words else (),
        )

    def joined(self, others: Inputs) -> Inputs:
        """These rows, followed by the rows of ``others``, which have the same arrays and no
        faults.
        """
        arrays = {
            name: np.concatenate([array, others.arrays[name]])
            for name, array in self.arrays.items()
        }
        labels, tokens = _joined(self.labels, others.labels), _joined(self.tokens, others.tokens)
        names = self.names + others.names
        words = self.words + others.words if self.words and others.words else ()
        return Inputs(arrays, names, labels, tokens, self.notes, read=self.read, words=words)

    def readable(self, note: Callable[[str, str], object]) -> Inputs:
        """The inputs without the rows that could not be read; a note lists these rows."""
        faults = zip(self.names, self.faults, strict=False)  # faults may be empty
        out = [f"{name}: {why}" for name, why in faults if why]
        if not out:
            return self
        what = "inputs is" if len(out) == 1 else "inputs are"
        note(f"{len(out)} of {len(self)} {what} left out", f"  why: {listed(out)}")
        return self.take([row for row, why in enumerate(self.faults) if not why])

    def tell(self, note: Callable[[str, str], object]) -> Inputs:
        """These inputs, after notes (headline and details) on what was left out of the data, and on
        how many texts were cut.
        """
        for headline, details in self.notes:
            note(headline, details)
        length = self.arrays["input_ids"].shape[1] if self.tokens is not None else 0
        if self.tokens is not None and self.tokens.max(initial=0) > length:
            longest, cut = int(self.tokens.argmax()), int((self.tokens > length).sum())
            note(
                f"{cut} of {len(self)} texts {'is' if cut == 1 else 'are'} cut to {length} tokens",
                f"  why: the longest, {self.names[longest]}, has {self.tokens[longest]} tokens; "
                "a pair loses tokens of its longer text first\n"
                "  what to do: compile for a greater --sequence-length, or give --long windows, "
                "which divides a text into several inputs",
            )
        return self

    def require_finite(self) -> Inputs:
        """These inputs; raises AtlasError if a value is NaN or infinite, or a text only padding.

        Calibration and search need this. Inputs that are only encrypted are checked one by one.
        """
        own = self.faults or [""] * len(self)
        for name, known, found in zip(self.names, own, faults(self.arrays), strict=True):
            if fault := known or found:
                raise AtlasError(
                    "an input cannot be used",
                    where=name,
                    why=fault,
                    remedy="leave the input out, or repair it",
                )
        return self

    def split(self, held_back_fraction: float, seed: int = 0) -> tuple[Inputs, Inputs]:
        """A random split (used, held back) that depends on the seed; both parts keep the order.

        At least one input is used. At least one is held back if there are two or more and the
        fraction is not zero. Raises AtlasError if the fraction is not in [0, 1).
        """
        if not 0 <= held_back_fraction < 1:
            raise AtlasError(
                f"held-back fraction {held_back_fraction} is not in [0, 1)",
                remedy="use a fraction such as 0.2",
            )
        count = round(len(self) * held_back_fraction)
        if held_back_fraction > 0:
            count = max(count, 1)
        count = min(count, len(self) - 1)
        order = np.random.default_rng(seed).permutation(len(self))
        return self.take(np.sort(order[count:])), self.take(np.sort(order[:count]))

    def digest(self) -> str:
        """SHA-256 (hex) of the arrays: names, types, shapes and values."""
        return arrays_digest(self.arrays)


def _joined(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    return None if first is None or second is None else np.concatenate([first, second])


def checked(inputs: Inputs, model: LoadedModel) -> Inputs:
    """The inputs with arrays in their final types, after checks that the model accepts the values.

    Raises AtlasError for an id outside the vocabulary, pixels of the wrong type or shape, and
    arrays that hold no numbers.
    """
    arrays = dict(inputs.arrays)
    for name, (what, size, remedy) in TABLES.items():
        if IDS in arrays and name in arrays:
            _require_indices(arrays[name], inputs.names, what, model.size(size), remedy)
    if "pixel_values" in arrays:
        arrays["pixel_values"] = _checked_pixels(arrays["pixel_values"], model.image_shape)
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise AtlasError(f"{name} must hold numbers, not {array.dtype}")
    return replace(inputs, arrays=arrays)


def _require_indices(
    ids: np.ndarray, names: Sequence[str], what: str, size: int | None, remedy: str
) -> None:
    """Raise AtlasError for an index ``[N, n]`` that is outside the model's table."""
    bad = (ids < 0) | (ids >= size) if size else ids < 0
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise AtlasError(
            what.format(ids[row, column]),
            where=f"{names[row]}, position {column}",
            why=f"ids run from 0 to {size - 1}" if size else "the id is negative",
            remedy=remedy,
        )


def _checked_pixels(pixels: np.ndarray, expected: Shape) -> np.ndarray:
    if pixels.dtype.kind != "f" or pixels.ndim != 4:
        raise AtlasError(
            f"pixel_values must be floats of shape [N, C, H, W], not {pixels.dtype} of shape "
            f"{pixels.shape}",
            remedy="scale the pixels as in training, for example pixels / 255, and use float32",
        )
    if any(e is not None and e != f for e, f in zip(expected, pixels.shape[1:], strict=True)):
        raise AtlasError(
            f"pixel_values has images of shape {pixels.shape[1:]}",
            why=f"the model takes [channels, height, width] = {expected}",
        )
    with np.errstate(over="ignore"):  # numbers too large for float32 are then refused as infinite
        return pixels.astype(np.float32)
