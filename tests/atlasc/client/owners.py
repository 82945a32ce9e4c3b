"""Which slots of an answer hold which of its elements, by other code than the library's."""

from __future__ import annotations

from typing import Any

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.program.kernels.context import blocked

OUTSIDE, COPIES = 4.0, 1 / 16
"""``outside_factor`` and ``copies_factor``."""


def owners(layout: Layout, shape: list[int], count: int) -> np.ndarray:
    """For each slot ``[ciphertexts, slots]`` the index into the flattened answer of the element
    that it should hold, -1 where it may hold anything.

    Args:
        layout, shape: of the answer, a whole batch.
        count: inputs that are real; the other rows of the batch copy the first.
    """
    elements = np.arange(1, int(np.prod(shape)) + 1).reshape(shape)
    elements[count:] = elements[0]
    if "d" in dict(layout.extents):
        elements = blocked(elements, layout)
    # Zero is what a layout pads with.
    packed = layout.pack(elements.reshape(layout.shape), repeat=("b",))
    return packed.astype(np.int64) - 1


def wrong_shares(output: Any, slots: np.ndarray, values: np.ndarray) -> np.ndarray:
    """By row of an answer ``[count, ...]``, the share of its slots that cannot be right.

    Args:
        output: the op ``ckks.output``, with one factor and a magnitude.
        slots: ``[ciphertexts, slots]`` that were decrypted.
        values: the answer, in the model's units.
    """
    shape, count = list(output.shape), len(values)
    owner = owners(Layout.parse(output.layout), shape, count)
    magnitude, factor = output.magnitude, output.factor[0]
    shares = []
    for row in range(count):
        wrong, held = 0, 0
        size = values[row].size
        for element in range(row * size, (row + 1) * size):
            copies = slots[owner == element]
            far = np.isnan(copies - copies[0]) | (
                np.abs(copies - copies[0]) * abs(factor) > COPIES * magnitude
            )
            value = values.reshape(-1)[element]
            outside = not abs(value) <= OUTSIDE * magnitude
            wrong, held = wrong + np.sum(far | outside), held + copies.size
        shares.append(wrong / held)
    return np.array(shares)
