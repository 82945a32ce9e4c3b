"""Layouts against plain indexing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.layout import REPLICATED, UNUSED, Field, Layout


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Up to three axes of any extents; their bits split at random over slots and ciphertexts."""
    fields: list[Field] = []
    outer: list[Field] = []
    extents = []
    for axis in draw(st.lists(st.sampled_from("bgdt"), unique=True, min_size=1, max_size=3)):
        extent = draw(st.integers(1, 9))
        bits = (extent - 1).bit_length() + draw(st.integers(0, 1))
        inner = draw(st.integers(0, bits))
        fields.append(Field(axis, inner))
        if bits > inner:
            middle = draw(st.integers(0, bits - inner - 1))
            outer.append(Field(axis, bits - inner - middle, inner + middle))
            outer += [Field(axis, middle, inner)] if middle else []
        extents.append((axis, extent))
    spare = st.sampled_from([REPLICATED, UNUSED])
    fields += [Field(draw(spare), draw(st.integers(0, 2))) for _ in range(draw(st.integers(0, 2)))]
    return Layout(tuple(draw(st.permutations(fields))), tuple(outer), tuple(extents))


def numbers(layout: Layout) -> np.ndarray:
    """A tensor whose elements are all different, and none is 0."""
    return np.arange(1.0, 1 + np.prod(layout.shape)).reshape(layout.shape)


def elements(layout: Layout):  # type: ignore[no-untyped-def]
    for index in itertools.product(*map(range, layout.shape)):
        yield dict(zip((axis for axis, _ in layout.extents), index, strict=True)), index


@given(layouts())
def test_text_form(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout


@given(layouts())
def test_unpack_undoes_pack(layout: Layout) -> None:
    tensor = numbers(layout)
    packed = layout.pack(tensor)
    assert packed.shape == (layout.ciphertexts, layout.slots)
    assert np.array_equal(layout.unpack(packed), tensor)


@given(layouts())
def test_every_element_lies_where_its_bits_say(layout: Layout) -> None:
    """An element-wise reading of the definition: a slot's digits, most significant first."""
    tensor = numbers(layout)
    packed = layout.pack(tensor)
    filled = np.zeros(packed.shape, dtype=bool)
    for axes, index in elements(layout):
        ciphertext = int(layout.ciphertext_of(axes))
        choices = []
        for field in layout.fields:
            size = 1 << field.bits
            if field.axis == REPLICATED:
                choices.append(range(size))
            elif field.axis == UNUSED:
                choices.append(range(1))
            else:
                digit = axes[field.axis] >> field.low & size - 1
                choices.append(range(digit, digit + 1))
        for digits_of_slot in itertools.product(*choices):
            slot = 0
            for field, digit in zip(layout.fields, digits_of_slot, strict=True):
                slot = slot << field.bits | digit
            assert packed[ciphertext, slot] == tensor[index]
            filled[ciphertext, slot] = True
        assert filled[ciphertext, int(layout.slot_of(axes))]
    assert not packed[~filled].any()


@given(layouts())
def test_slot_index_inverts_slot_of(layout: Layout) -> None:
    for axes, _ in elements(layout):
        slot, ciphertext = int(layout.slot_of(axes)), int(layout.ciphertext_of(axes))
        for axis, position in axes.items():
            high = layout.ciphertext_index[ciphertext].get(axis, 0)
            low = int(layout.slot_index(axis)[slot])
            assert high + low == position


def test_padding_is_zero_or_repeats_index_0() -> None:
    layout = Layout.parse("[d:2 t:2 |  | t=3 d=3]")
    tensor = np.array([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])  # [t, d]
    assert layout.pack(tensor).tolist() == [[1, 4, 7, 0, 2, 5, 8, 0, 3, 6, 9, 0, 0, 0, 0, 0]]
    repeated = [[1, 4, 7, 1, 2, 5, 8, 2, 3, 6, 9, 3, 0, 0, 0, 0]]
    assert layout.pack(tensor, repeat=("t",)).tolist() == repeated
    both = [[1, 4, 7, 1, 2, 5, 8, 2, 3, 6, 9, 3, 1, 4, 7, 1]]
    assert layout.pack(tensor, repeat=("t", "d")).tolist() == both
    assert np.array_equal(layout.unpack(layout.pack(tensor, repeat=("t", "d"))), tensor)


def test_a_tensor_broadcasts_before_it_is_packed() -> None:
    layout = Layout.parse("[d:1 t:1 |  | t=2 d=2]")
    assert layout.pack(np.array([[1.0, 2.0]])).tolist() == [[1, 1, 2, 2]]
    assert layout.pack(np.asarray(7.0)).tolist() == [[7, 7, 7, 7]]


def test_ciphertexts_of_padding_alone_are_left_out() -> None:
    layout = Layout.parse("[d:1 | g.0:3 | g=5 d=2]")
    assert layout.ciphertexts == 5
    both = Layout.parse("[g:1 d:1 | g.1:2 t:1 | g=5 d=2 t=2]")
    assert both.ciphertexts == 3 * 2
    assert both.ciphertext_index[3] == {"g": 2, "t": 1}


def test_replicated_and_unused_bits() -> None:
    tensor = np.array([1.0, 2.0])
    assert Layout.parse("[*:1 d:1 |  | d=2]").pack(tensor).tolist() == [[1, 2, 1, 2]]
    assert Layout.parse("[d:1 *:1 |  | d=2]").pack(tensor).tolist() == [[1, 1, 2, 2]]
    assert Layout.parse("[d:1 ?:1 |  | d=2]").pack(tensor).tolist() == [[1, 0, 2, 0]]


def test_a_reduced_layout_aligns_its_ciphertexts() -> None:
    full = Layout.parse("[s:1 g:1 t:1 | g.1:2 s.1:1 | g=5 s=4 t=2]")
    reduced = full.without(("s",), REPLICATED)
    assert str(reduced) == "[*:1 g:1 t:1 | g.1:2 | g=5 t=2]"
    assert (full.ciphertexts, reduced.ciphertexts) == (6, 3)
    assert full.ciphertexts_of(reduced) == [0, 0, 1, 1, 2, 2]
    assert full.ciphertexts_of(full) == list(range(6))


def test_strides() -> None:
    layout = Layout.parse("[d:2 g:1 b:0 t:3 |  | b=1 t=5 g=2 d=3]")
    assert [layout.stride(axis) for axis in "dgbt"] == [16, 8, 8, 1]
    assert layout.slots == 64
    with pytest.raises(ValueError, match="no slot field for axis s"):
        layout.stride("s")


@pytest.mark.parametrize(
    "text", ["", "[]", "[d:2 | d:2 | d=3]", "[d:2 d:1 |  | d=3]", "[t:1 |  | ]", "[d:1 |  | d=3]"]
)
def test_texts_that_are_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match=r"layout|axis"):
        Layout.parse(text)
