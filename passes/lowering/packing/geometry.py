"""The common geometry of all values of a packed program."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.bounds import MAX_SLOT_BITS
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import REPLICATED, Field, Layout
from atlasc.ir.module import Module


def bits_for(extent: int) -> int:
    """Number of bits that index ``extent`` elements: ⌈log₂ extent⌉."""
    return (extent - 1).bit_length()


@dataclass(frozen=True)
class Packing:
    """Slots of the axes: with features in the top bits slot = ((d · 2^g + g) · 2^b + b) · 2^t + t,
    with features in the low bits slot = ((t · 2^b + b) · 2^d + d) · 2^g + g.

    Features are split into blocks (g) of ``width`` features (d). The width is that of an attention
    head, so that hidden state, heads and scores share one arrangement, and no op has to move data
    between them. Blocks that do not fit into a ciphertext go to further ciphertexts. Spare slots
    hold more of the batch.

    Attributes:
        width: number of features in a block.
        d, g, b, t: slot bits of each axis; their sum is the slot bits of a ciphertext.
        features_low: whether the features lie in the low bits.
    """

    width: int
    d: int
    g: int
    b: int
    t: int
    features_low: bool = False

    def hidden(self, batch: int, tokens: int, features: int) -> Layout:
        """Layout ``[b, t, g, d]`` of a tensor [batch, tokens, features]."""
        blocks = -(-features // self.width)
        spill = bits_for(blocks) - self.g
        outer = (Field("g", spill, self.g),) if spill > 0 else ()
        extents = (("b", batch), ("t", tokens), ("g", blocks), ("d", self.width))
        order = "tbdg" if self.features_low else "dgbt"
        fields = tuple(Field(axis, getattr(self, axis)) for axis in order)
        return Layout(fields, outer, extents)

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
        return Layout((*full.fields[:2], *low), full.outer, extents)


def choose_packing(module: Module, slots: int, features_low: bool = False) -> Packing:
    """The packing of a poly module in ciphertexts of ``slots``.

    Raises:
        AtlasError: the tokens and the width of a head do not fit a ciphertext, or the batch does
            not.
    """
    batch, tokens, features, width = _extents(module)
    d, t, b = map(bits_for, (width, tokens, batch))
    free = bits_for(slots) - d - t - b
    if free < 0:
        raise _too_large(batch, tokens, width, slots)
    g = min(free, bits_for(-(-features // width)))
    return Packing(width, d, g, b + free - g, t, features_low)


def least_slots(module: Module) -> int:
    """Number of slots that a ciphertext must have to hold one block of features of the whole batch.

    Raises:
        AtlasError: no ciphertext has so many.
    """
    batch, tokens, _, width = _extents(module)
    bits = sum(map(bits_for, (width, tokens, batch)))
    if bits > MAX_SLOT_BITS:
        raise _too_large(batch, tokens, width, 1 << MAX_SLOT_BITS)
    return 1 << bits


def _too_large(batch: int, tokens: int, width: int, slots: int) -> AtlasError:
    needed = sum(map(bits_for, (width, tokens, batch)))
    return AtlasError(
        f"{batch} inputs of {tokens} tokens and blocks of {width} features need 2^{needed} slots, "
        f"but a ciphertext has {slots}",
        why="the tokens of one block of features must share a ciphertext",
        remedy="use a shorter --sequence-length, a smaller batch, or a larger ring",
    )


def _extents(module: Module) -> tuple[int, int, int, int]:
    """Batch, tokens, greatest number of features, and features of an attention head."""
    given = [op.attributes for op in module.inputs if op.attributes["side"] == "server"]
    shapes = [one["shape"] for one in given if not one.get("state")]
    if not shapes or any(len(shape) not in (2, 3) for shape in shapes):
        raise AtlasError(
            "the program needs one encrypted input [batch, tokens, features] or [batch, features]",
            why=f"its encrypted inputs have shapes {shapes}",
        )
    kept = [one["shape"][2] for one in given if one.get("state")]  # [batch, heads, tokens, width]
    tokens = max([*kept, *(shape[1] if len(shape) == 3 else 1 for shape in shapes)])
    features = [shape[-1] for shape in shapes]
    heads = set()
    for op in module.ops:
        if op.name == "poly.linear":
            features += module.symbols[op.attributes["weight"].name].shape
        elif op.name == "poly.matmul" and op.attributes["transpose_b"]:
            heads.add(op.operands[0].tensor.shape[-1])
    if len(heads) > 1:
        raise AtlasError(
            f"attention heads of different widths {sorted(heads)} cannot share one packing"
        )
    width = heads.pop() if heads else max(min(features), 1)
    return shapes[0][0], tokens, max(features), width
