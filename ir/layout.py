"""Packing layouts: which slot bit is which bit of which tensor axis (Fhelipe, PLDI 2024).

A slot index is read as a sequence of *fields*, most significant first; each field is a run of
consecutive bits of one tensor axis, a run over which the value is replicated (axis ``*``), or a run
of which only index 0 holds the value and the rest holds anything (axis ``?``). An axis may have
several fields.
Bits that do not fit into a ciphertext go to the *outer* fields, which number the ciphertexts.
Axes of a packed Transformer value are ``b`` (batch), ``t`` (token), ``g`` (feature block: a head),
``d`` (feature within a block) and ``s`` (score diagonal: key position minus query position, or the
key where there is one query alone).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from atlasc.ir.bounds import MAX_INDEX_BITS, MAX_SLOT_BITS

REPLICATED = "*"
UNUSED = "?"
_FIELD = re.compile(r"([a-z]+|[*?])(?:\.(\d{1,2}))?:(\d{1,2})", re.ASCII)
_EXTENT = re.compile(r"([a-z]+)=(\d{1,10})", re.ASCII)


@dataclass(frozen=True)
class Field:
    """Bits ``low`` to ``low + bits - 1`` of the index along ``axis``."""

    axis: str
    bits: int
    low: int = 0

    def digit(self, index: Any) -> Any:
        """The bits of indices along the axis that the field holds."""
        return (np.asarray(index) >> self.low) & ((1 << self.bits) - 1)

    def __str__(self) -> str:
        return f"{self.axis}{f'.{self.low}' if self.low else ''}:{self.bits}"

    @classmethod
    def parse(cls, text: str) -> Field:
        """Read ``axis[.low]:bits``; raises ValueError on anything else."""
        match = _FIELD.fullmatch(text)
        if match is None:
            raise ValueError(f"a layout field is axis[.low]:bits, not {text!r}")
        return cls(match[1], int(match[3]), int(match[2] or 0))


@dataclass(frozen=True)
class Layout:
    """Fields of the slot index and of the ciphertext index, and the unpadded extent of each axis.

    Attributes:
        fields: slot fields, most significant first; their bits add up to log2(slots).
        outer: ciphertext-index fields, most significant first.
        extents: (axis, extent) pairs in the order of the packed tensor's axes.
    """

    fields: tuple[Field, ...]
    outer: tuple[Field, ...]
    extents: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        slot_bits = sum(field.bits for field in self.fields)
        if not self.fields or slot_bits > MAX_SLOT_BITS:
            raise ValueError(f"a layout numbers 1 to {1 << MAX_SLOT_BITS} slots")
        if slot_bits + sum(field.bits for field in self.outer) > MAX_INDEX_BITS:
            raise ValueError(f"a layout has at most 2^{MAX_INDEX_BITS} slots in all ciphertexts")
        if any(field.axis in (REPLICATED, UNUSED) for field in self.outer):
            raise ValueError(f"the layout {self} has ciphertexts whose number is not an index")
        extents = dict(self.extents)
        if len(extents) < len(self.extents) or min(extents.values(), default=1) < 1:
            raise ValueError(f"the layout {self} needs one positive extent for each axis")
        bits: dict[str, list[int]] = {axis: [] for axis in extents}
        for field in (*self.fields, *self.outer):
            if field.axis not in (REPLICATED, UNUSED):
                if field.axis not in extents:
                    raise ValueError(f"the layout {self} has no extent for axis {field.axis}")
                bits[field.axis] += range(field.low, field.low + field.bits)
        for axis, extent in self.extents:
            places = sorted(bits[axis])
            if places != list(range(len(places))) or extent > 1 << len(places):
                raise ValueError(
                    f"the layout {self} gives axis {axis} the index bits {places}, which do not "
                    f"number {extent} elements"
                )

    def __str__(self) -> str:
        inner = " ".join(map(str, self.fields))
        outer = " ".join(map(str, self.outer))
        extents = " ".join(f"{axis}={n}" for axis, n in self.extents)
        return f"[{inner} | {outer} | {extents}]"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Inverse of ``str``; raises ValueError."""
        parts = text.strip().removeprefix("[").removesuffix("]").split("|")
        if len(parts) != 3:
            raise ValueError("a layout is [slot fields | ciphertext fields | extents]")
        fields, outer = (tuple(map(Field.parse, part.split())) for part in parts[:2])
        extents = []
        for extent in parts[2].split():
            match = _EXTENT.fullmatch(extent)
            if match is None:
                raise ValueError(f"an extent is axis=count, not {extent!r}")
            extents.append((match[1], int(match[2])))
        return cls(fields, outer, tuple(extents))

    @cached_property
    def slots(self) -> int:
        """Number of slots of one ciphertext."""
        return 1 << sum(field.bits for field in self.fields)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Unpadded extents in axis order."""
        return tuple(extent for _, extent in self.extents)

    @cached_property
    def period(self) -> int:
        """Slots after which a ciphertext repeats, at most: fields before them are replicated, or
        are of a batch of one, whose spare places hold copies.
        """
        bits = self.slots.bit_length() - 1
        for field in self.fields:
            if field.axis != REPLICATED and (field.axis, self.extent(field.axis)) != ("b", 1):
                break
            bits -= field.bits
        return 1 << bits

    @property
    def copies(self) -> int:
        """How often the slots of a ciphertext repeat, at least."""
        return self.slots // self.period

    @cached_property
    def batch_copies(self) -> int:
        """Number of places in a ciphertext that hold the input of a batch of one; 1 for others."""
        alone = any(axis == "b" and extent == 1 for axis, extent in self.extents)
        return 1 << sum(field.bits for field in self.fields if alone and field.axis == "b")

    @cached_property
    def features_low(self) -> bool:
        """Whether the features lie in the low slot bits, below the batch, and not in the top ones.

        A plaintext that depends on the feature alone then repeats.
        """
        return len(self.fields) > 1 and self.fields[1].axis == "b"

    @cached_property
    def copies_first(self) -> bool:
        """Whether copies of a batch of one lie in the top slot bits, above all other fields."""
        return self.fields[0].axis == "b" and self.extent("b") == 1

    @cached_property
    def one_token(self) -> bool:
        """Whether it is one of a program of one token (`atlasc.ir.ops.rows`): copies lie in the top
        slot bits, and the batch in the low ones.
        """
        return self.fields[-1].axis == "b"

    @cached_property
    def feature_repeats(self) -> int:
        """How often a ciphertext has each place of a feature: once for each token of each input if
        features lie in the low bits, as often as there are copies in a program of one token or
        above the features, otherwise once.
        """
        if self.one_token:
            return self.copies
        if self.copies_first:
            return 1 << self.fields[0].bits
        return 1 << sum(field.bits for field in self.fields[:2]) if self.features_low else 1

    def extent(self, axis: str) -> int:
        """Unpadded extent of an axis, 1 where the layout does not have it."""
        return dict(self.extents).get(axis, 1)

    def field(self, axis: str) -> Field | None:
        """The slot field of an axis."""
        return next((field for field in self.fields if field.axis == axis), None)

    def offset(self, target: Field) -> int:
        """Bit position of a slot field's least significant bit."""
        position = self.fields.index(target)
        return sum(field.bits for field in self.fields[position + 1 :])

    def stride(self, axis: str) -> int:
        """Distance in slots between neighbours along an axis."""
        field = self.field(axis)
        if field is None:
            raise ValueError(f"the layout {self} has no slot field for axis {axis}")
        return 1 << self.offset(field)

    def _outer_radix(self, field: Field) -> int:
        """Number of ciphertexts along an outer field, without those that hold only padding."""
        return min(1 << field.bits, -(-self.extent(field.axis) // (1 << field.low)))

    @cached_property
    def ciphertexts(self) -> int:
        """Number of ciphertexts."""
        return math.prod(map(self._outer_radix, self.outer))

    def ciphertext_of(self, index: Mapping[str, np.ndarray | int]) -> np.ndarray:
        """Ciphertext number of elements given by their index along each axis."""
        number: np.ndarray = np.asarray(0)
        for field in self.outer:
            number = number * self._outer_radix(field) + field.digit(index[field.axis])
        return number

    def slot_of(self, index: Mapping[str, np.ndarray | int]) -> np.ndarray:
        """Slot of elements given by their index along each axis; other fields count as 0."""
        slot: np.ndarray = np.asarray(0)
        for field in self.fields:
            known = field.axis not in (REPLICATED, UNUSED)
            slot = (slot << field.bits) + (field.digit(index[field.axis]) if known else 0)
        return slot

    def slot_index(self, axis: str) -> np.ndarray:
        """The index bits along ``axis`` of every slot, ``[slots]``; 0 without a field."""
        index, rest = np.zeros(self.slots, dtype=np.int64), np.arange(self.slots)
        for field in reversed(self.fields):
            if field.axis == axis:
                index += (rest & ((1 << field.bits) - 1)) << field.low
            rest >>= field.bits
        return index

    @cached_property
    def ciphertext_index(self) -> list[dict[str, int]]:
        """For every ciphertext, the index bits along each axis that its number stands for."""
        indices: list[dict[str, int]] = [{}]
        for field in self.outer:
            indices = [
                {**index, field.axis: index.get(field.axis, 0) | digit << field.low}
                for index in indices
                for digit in range(self._outer_radix(field))
            ]
        return indices

    def ciphertexts_of(self, reduced: Layout) -> list[int]:
        """For every ciphertext of this layout, the one of a reduced layout that aligns with it."""
        return [int(reduced.ciphertext_of(index)) for index in self.ciphertext_index]

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray]:
        index = {
            axis: np.arange(extent).reshape([-1 if a == axis else 1 for a, _ in self.extents])
            for axis, extent in self.extents
        }
        full = np.zeros(self.shape, dtype=np.int64)
        return self.ciphertext_of(index) + full, self.slot_of(index) + full

    def padded(self, axes: tuple[str, ...]) -> Layout:
        """The layout with the extents of ``axes`` grown to fill all slots of their ciphertexts."""
        sizes = {
            axis: 1 << sum(field.bits for field in self.fields if field.axis == axis)
            for axis in axes
        }
        grown = ((a, -(-n // sizes.get(a, 1)) * sizes.get(a, 1)) for a, n in self.extents)
        return Layout(self.fields, self.outer, tuple(grown))

    def pack(self, tensor: np.ndarray, repeat: tuple[str, ...] = ()) -> np.ndarray:
        """Slots ``[ciphertexts, slots]`` of a tensor that broadcasts to ``shape``.

        Padding is zero, except along the axes ``repeat``, where it copies index 0.
        """
        tensor, full = np.broadcast_to(tensor, self.shape), self.padded(repeat)
        for position, (extent, grown) in enumerate(zip(self.shape, full.shape, strict=True)):
            if grown > extent:
                index = np.arange(grown)
                tensor = np.take(tensor, np.where(index < extent, index, 0), axis=position)
        # Slot offsets of all copies that the replicated fields ask for.
        copies, low = np.zeros(1, dtype=np.int64), 0
        for field in reversed(self.fields):
            if field.axis == REPLICATED:
                copies = ((np.arange(1 << field.bits) << low)[:, None] + copies).ravel()
            low += field.bits
        packed = np.zeros((self.ciphertexts, self.slots))
        ciphertext, slot = full._grid
        packed[ciphertext[..., None], slot[..., None] + copies] = tensor[..., None]
        return packed

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The tensor that ``[ciphertexts, slots]`` hold; the first copy where replicated."""
        ciphertext, slot = self._grid
        return packed[ciphertext, slot]

    def without(self, axes: tuple[str, ...], stand_in: str) -> Layout:
        """The layout after a reduction over ``axes``: their slot fields become ``stand_in``."""
        fields = tuple(
            Field(stand_in, field.bits) if field.axis in axes else field for field in self.fields
        )
        outer = tuple(field for field in self.outer if field.axis not in axes)
        extents = tuple(pair for pair in self.extents if pair[0] not in axes)
        return Layout(fields, outer, extents)

    @cached_property
    def gathered(self) -> Layout | None:
        """The layout with all ciphertexts moved into one: the top bits of the first field that is
        replicated become the number of the ciphertext. None where the copies are too few, or where
        there is only one ciphertext.
        """
        bits = sum(field.bits for field in self.outer)
        at = self.copied
        if not bits or at is None or self.fields[at].bits < bits:
            return None
        left = self.fields[at].bits - bits
        rest = (Field(REPLICATED, left),) if left else ()
        fields = (*self.fields[:at], *self.outer, *rest, *self.fields[at + 1 :])
        return Layout(fields, (), self.extents)

    @cached_property
    def copied(self) -> int | None:
        """Number of the field whose copies make room for other ciphertexts: with the features in
        the top bits only the first field can be.
        """
        fields = self.fields if self.features_low else self.fields[:1]
        return next((n for n, field in enumerate(fields) if field.axis == REPLICATED), None)

    @property
    def unused_beside_copies(self) -> bool:
        """Whether slots are unused in another field than the one that makes room for ciphertexts
        when unused slots count as copies.
        """
        at = self.without((UNUSED,), REPLICATED).copied
        fields = (field for n, field in enumerate(self.fields) if n != at)
        return any(field.axis == UNUSED and field.bits for field in fields)

    @cached_property
    def one_row(self) -> Layout:
        """The layout of one token's value, where one field is that of the tokens.

        With the features in the low bits the value is copied to the slots of all tokens.

        Otherwise the slots of the tokens are free: the top bits of their field hold the blocks that
        otherwise number ciphertexts, and the value is replicated over the other bits. With a batch
        between blocks and tokens the blocks stay where they are, because a sum over them would no
        longer wrap around the ciphertext.
        """
        if self.features_low:
            return self.without(("t", UNUSED), REPLICATED)
        batch, tokens = self.field("b"), self.fields[-1]
        spilled = next((field for field in self.outer if field.axis == "g"), Field("g", 0))
        bits = 0 if batch is None or batch.bits else min(spilled.bits, tokens.bits)
        places = (Field("g", bits, spilled.low),) if bits else ()
        left = (Field("g", spilled.bits - bits, spilled.low + bits),) if spilled.bits > bits else ()
        fields = (*self.fields[:-1], *places, Field(REPLICATED, tokens.bits - bits))
        outer = (*left, *(field for field in self.outer if field.axis != "g"))
        extents = tuple(pair for pair in self.extents if pair[0] != "t")
        return Layout(fields, outer, extents)
