"""Row packing: a matrix of tokens goes into ciphertexts row by row, its features contiguous.

    slot = (token mod R) · P + feature

with P the features of the model and R = slots / P the rows of a ciphertext, powers of two. A matrix
of more than P columns is cut into blocks of P; a matrix of fewer than R rows is repeated, so that a
rotation by multiples of P is cyclic over its tokens. A row is also heads of ``width`` features; the
scores of a head take the place of its features, by diagonals (key − query).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.packing.forms import Form
from atlasc.passes.lowering.packing.geometry import bits_for

_HEADED = (Form.SPLIT, Form.HEADS, Form.SCORES, Form.SCORE_SUMS)


@dataclass(frozen=True)
class Rows:
    """The geometry of a row-packed program.

    Attributes:
        slots: of a ciphertext.
        tokens: rows of a matrix.
        features: of the hidden state.
        heads: attention heads; 1 without attention.

    Raises:
        AtlasError: heads of a width that is no power of two, or rows longer than a ciphertext.
    """

    slots: int
    tokens: int
    features: int
    heads: int = 1

    def __post_init__(self) -> None:
        if self.heads > 1 and self.features // self.heads != self.width:
            raise AtlasError("row packing needs heads whose width is a power of two")
        if self.row > self.slots:
            raise AtlasError(f"a row of {self.row} features needs more than {self.slots} slots")

    @cached_property
    def row(self) -> int:
        """P: slots of a row."""
        return 1 << bits_for(self.features)

    @cached_property
    def width(self) -> int:
        """Slots of a head."""
        return 1 << bits_for(self.features // self.heads)

    @cached_property
    def period(self) -> int:
        """Tokens, padded to a power of two; also the number of diagonals of the scores."""
        return 1 << bits_for(self.tokens)

    @cached_property
    def ciphertexts(self) -> int:
        """Ciphertexts of one block of columns."""
        return max(1, self.period * self.row // self.slots)

    @cached_property
    def rows(self) -> int:
        """Different rows of a ciphertext."""
        return self.period // self.ciphertexts

    @cached_property
    def score_blocks(self) -> int:
        """Blocks of diagonals of the scores."""
        return max(1, self.period // self.width)

    def blocks(self, columns: int) -> int:
        """Blocks of a matrix."""
        return -(-columns // self.row)

    @cached_property
    def feature(self) -> np.ndarray:
        """Feature of every slot within its row, ``[slots]``."""
        return np.arange(self.slots) % self.row

    def token(self, c: int) -> np.ndarray:
        """Token of every slot of ciphertext ``c`` of a block, ``[slots]``."""
        return (c * self.rows + np.arange(self.slots) // self.row % self.rows) % self.period

    def occupied(self, form: Form, columns: int, block: int, c: int) -> np.ndarray:
        """Boolean slots that hold something: all others are padding."""
        real = self.token(c) < self.tokens
        if form in _HEADED:
            return real & (self.feature // self.width < self.heads)
        if form is Form.HIDDEN:
            return real & (block * self.row + self.feature < columns)
        return real

    def seen(self, causal: bool, mask: np.ndarray | None, block: int, c: int) -> np.ndarray:
        """Boolean slots of scores whose query may see their key."""
        diagonal = block * self.width + self.feature % self.width
        query = self.token(c)
        key = (query + diagonal) % self.period
        seen = self.occupied(Form.SCORES, 0, block, c) & (diagonal < self.period)
        seen &= key < self.tokens
        if causal:
            seen &= key <= query
        if mask is not None:
            seen &= mask[0, np.minimum(key, self.tokens - 1)].astype(bool)
        return seen

    def log_hidden(self, causal: bool, mask: np.ndarray | None, c: int) -> np.ndarray:
        """log(keys / visible keys) of the query of every slot of scores."""
        kept = np.ones(self.tokens, bool) if mask is None else mask[0].astype(bool)
        query = np.minimum(self.token(c), self.tokens - 1)
        visible = kept.cumsum()[query if causal else -1]
        return np.log(self.tokens / np.maximum(visible, 1))

    def spread(self, columns: np.ndarray, block: int, c: int) -> np.ndarray:
        """Slots of a row vector ``[columns]`` that is the same for all tokens, 0 in padding."""
        padded = np.zeros(self.blocks(len(columns)) * self.row)
        padded[: len(columns)] = columns
        real = self.token(c) < self.tokens
        return np.where(real, padded[block * self.row + self.feature], 0.0)

    def pack(self, matrix: np.ndarray) -> list[list[np.ndarray]]:
        """Slots ``[block][c]`` of a matrix ``[tokens, columns]``."""
        tokens, columns = matrix.shape
        padded = np.zeros((self.period, self.blocks(columns) * self.row))
        padded[:tokens, :columns] = matrix
        return [
            [padded[self.token(c), block * self.row + self.feature]
             for c in range(self.ciphertexts)]
            for block in range(self.blocks(columns))
        ]  # fmt: skip

    def unpack(self, packed: list[list[np.ndarray]], columns: int) -> np.ndarray:
        """The inverse of :meth:`pack`."""
        used = self.rows * self.row
        blocks = [
            np.concatenate([slots[:used].reshape(self.rows, self.row) for slots in block])
            for block in packed
        ]
        return np.concatenate(blocks, axis=1)[: self.tokens, :columns]
