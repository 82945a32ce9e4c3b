"""The common geometry of all values of a packed program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.ir.bounds import MAX_SLOT_BITS
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import REPLICATED, Field, Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.ops.rows import Cache, bits_for, row_layout


@dataclass(frozen=True)
class Packing:
    """Slots of the axes: with features in the top bits slot = ((d · 2^g + g) · 2^b + b) · 2^t + t,
    with features in the low bits slot = ((t · 2^b + b) · 2^d + d) · 2^g + g. With copies first,
    slot = ((b · 2^d + d) · 2^g + g) · 2^t + t: copies of a batch of one then lie above everything
    else, so that every plaintext repeats.

    Features are split into blocks (g) of ``width`` features (d). The width is that of an attention
    head, so that hidden state, heads and scores share one arrangement, and no op has to move data
    between them. Blocks that do not fit into a ciphertext go to further ciphertexts. Spare slots
    hold more of the batch.

    Attributes:
        width: number of features in a block.
        d, g, b, t: slot bits of each axis; their sum is the slot bits of a ciphertext.
        features_low: whether the features lie in the low bits.
        copies_first: whether copies of a batch of one lie in the top bits.
    """

    width: int
    d: int
    g: int
    b: int
    t: int
    features_low: bool = False
    copies_first: bool = False

    def __str__(self) -> str:
        bits = " ".join(f"{axis}={getattr(self, axis)}" for axis in "dgbt")
        place = "low" if self.features_low else "top"
        place = f"{place} bits" + ", below copies" * self.copies_first
        return f"{self.width} features a block, slot bits {bits}, features in the {place}"

    def hidden(self, batch: int, tokens: int, features: int) -> Layout:
        """Layout ``[b, t, g, d]`` of a tensor [batch, tokens, features]."""
        blocks = -(-features // self.width)
        spill = bits_for(blocks) - self.g
        outer = (Field("g", spill, self.g),) if spill > 0 else ()
        extents = (("b", batch), ("t", tokens), ("g", blocks), ("d", self.width))
        order = "tbdg" if self.features_low else "bdgt" if self.copies_first else "dgbt"
        fields = tuple(Field(axis, getattr(self, axis)) for axis in order)
        return Layout(fields, outer, extents)

    def encrypted(self, shape: Sequence[int]) -> Layout:
        """Layout of an input [batch, tokens, features] or [batch, features]."""
        layout = self.hidden(shape[0], shape[1] if len(shape) == 3 else 1, shape[-1])
        one_of_several = len(shape) == 2 and self.t > 0
        return layout.one_row if one_of_several else layout

    def rows(self, batch: int) -> RowPacking:
        """The packing of a program of one token after this one."""
        return RowPacking(1 << self.d + self.g + self.b + self.t, self.width, bits_for(batch))

    def like(self, source: Layout, features: int) -> Layout:
        """Layout of another number of features, for the rows of ``source``."""
        if source.fields[-1].axis == REPLICATED:
            return self.hidden(source.extent("b"), 1, features).one_row
        rows = [(axis, extent) for axis, extent in source.extents if axis in ("b", "t")]
        full = self.hidden(source.extent("b"), source.extent("t"), features)
        if self.features_low:
            extents = (*rows, *((a, n) for a, n in full.extents if a in ("g", "d")))
            return Layout((*source.fields[:2], *full.fields[2:]), full.outer, extents)
        low = tuple(field for field in source.fields if field.axis not in ("d", "g"))
        extents = (*rows, *((a, n) for a, n in full.extents if a in ("g", "d")))
        first = int(self.copies_first)
        return Layout((*full.fields[: first + 2], *low[first:]), full.outer, extents)


@dataclass(frozen=True)
class RowPacking:
    """Slots of the axes in a program of one token, beside keys and values of all earlier ones
    (`atlasc.ir.ops.rows`). A value fills as few slots as it needs; copies of it fill the others.

    Attributes:
        slots: slots of a ciphertext.
        width: number of features in a block.
        b: slot bits of the batch.
    """

    slots: int
    width: int
    b: int
    features_low = False

    def __str__(self) -> str:
        return f"rows of one token in blocks of {self.width} features, slot bits b={self.b}"

    def row(self, batch: int, features: int) -> Layout:
        """Layout ``[b, g, d]`` of a tensor [batch, features]."""
        return row_layout(self.slots, batch, -(-features // self.width), self.width, self.b)

    def encrypted(self, shape: Sequence[int]) -> Layout:
        """Layout of an input [batch, features]."""
        return self.row(shape[0], shape[-1])

    def like(self, source: Layout, features: int) -> Layout:
        """Layout of another number of features, for the rows of ``source``."""
        return self.row(source.extent("b"), features)

    def cache(self, keys: bool, value: Value) -> Layout:
        """Layout of keys or values [batch, heads, tokens, width]."""
        batch, heads, tokens, width = value.tensor.shape
        row = self.row(batch, heads * width)
        if row.outer:
            raise _too_few(batch, heads, width, self.slots, one_token=True)
        return Cache.choose(keys, row, tokens).layout


def is_step(module: Module) -> bool:
    """Whether a poly module is a program of one token, beside state of all earlier ones."""
    return any(op.attributes.get("state") for op in module.inputs)


def choose_packing(module: Module, slots: int, features_low: bool = False) -> Packing | RowPacking:
    """The packing of a poly module in ciphertexts of ``slots``.

    Raises:
        AtlasError: the tokens and the width of a head do not fit a ciphertext, or the batch does
            not.
    """
    batch, tokens, features, width = _extents(module)
    if is_step(module):
        if slots < least_slots(module):
            raise _too_large(module, slots)
        return RowPacking(slots, width, bits_for(batch))
    d, t, b = map(bits_for, (width, tokens, batch))
    free = bits_for(slots) - d - t - b
    if free < 0:
        raise _too_large(module, slots)
    g = min(free, bits_for(-(-features // width)))
    copies_first = batch == 1 and free > g and not features_low
    return Packing(width, d, g, b + free - g, t, features_low, copies_first)


def least_slots(module: Module) -> int:
    """Number of slots that a ciphertext must have to hold one block of features of the whole batch;
    in a program of one token, its heads.

    Raises:
        AtlasError: no ciphertext has so many.
    """
    batch, tokens, _, width = _extents(module)
    bits = sum(map(bits_for, (width, tokens, batch)))
    if bits > MAX_SLOT_BITS:
        raise _too_large(module, 1 << MAX_SLOT_BITS)
    return 1 << bits


def _too_large(module: Module, slots: int) -> AtlasError:
    batch, rows, _, width = _extents(module)
    return _too_few(batch, rows, width, slots, one_token=is_step(module))


def _too_few(batch: int, rows: int, width: int, slots: int, *, one_token: bool) -> AtlasError:
    """The refusal of ciphertexts that cannot hold the tokens of a block of features, or the heads
    of one token.
    """
    needed, what = sum(map(bits_for, (width, rows, batch))), "tokens"
    why = "the tokens of one block of features must share a ciphertext"
    remedy = "use a shorter --sequence-length, a smaller batch, or a larger ring"
    if one_token:
        what, why = "heads", "the heads of one token must share a ciphertext"
        remedy = "use a smaller batch, or a larger ring"
    return AtlasError(
        f"{batch} inputs of {rows} {what} and blocks of {width} features need 2^{needed} slots, "
        f"but a ciphertext has {slots}",
        why=why,
        remedy=remedy,
    )


def _extents(module: Module) -> tuple[int, int, int, int]:
    """Batch, tokens (of a program of one token: heads), greatest number of features, and features
    of a head.
    """
    inputs = [op for op in module.inputs if op.attributes["side"] == "server"]
    given = [op.attributes for op in inputs]
    shapes = [one["shape"] for one in given if not one.get("state")]
    if not shapes or any(len(shape) not in (2, 3) for shape in shapes):
        raise AtlasError(
            "the program needs one encrypted input [batch, tokens, features] or [batch, features]",
            where=next((op.location for op in inputs), ""),
            why=f"its encrypted inputs have shapes {shapes}",
        )
    kept = [one["shape"][1] for one in given if one.get("state")]  # [batch, heads, tokens, width]
    tokens = max([*kept, *(shape[1] if len(shape) == 3 else 1 for shape in shapes)])
    features = [shape[-1] for shape in shapes]
    heads, split = dict[int, Op](), list[int]()
    for op in module.ops:
        if op.name == "poly.linear":
            features += module.symbols[op.attributes["weight"].name].shape
        elif op.name == "poly.matmul" and op.attributes["transpose_b"]:
            heads.setdefault(op.operands[0].tensor.shape[-1], op)
        elif op.name == "poly.reshape" and len(op.value.tensor.shape) == 4:
            split.append(op.value.tensor.shape[-1])
    if len(heads) > 1:
        raise AtlasError(
            f"attention heads of different widths {sorted(heads)} cannot share one packing",
            where=[op.location for op in heads.values()],
            why="the slots of a ciphertext hold blocks of features, each as wide as a head",
            remedy="give the queries and keys of all layers heads of one width",
        )
    width = [*heads, *split, max(min(features), 1)][0]
    return shapes[0][0], tokens, max(features), width
