"""Checks of decrypted answers: a ciphertext that exploded decrypts to numbers like any other.

The largest output of calibration is an attribute of the client's own part; an answer far above it
is refused. Many slots of an answer should hold the same number: the layout replicates values, and
the padding of a batch copies the first input. If they differ by more than any noise, the ciphertext
exploded or is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.ir.types import CiphertextType

OUTSIDE = 4.0
"""Times the greatest magnitude of calibration: inputs and answers beyond it are refused. Other
inputs may be larger than those of calibration, but a polynomial that explodes exceeds any such
factor at once."""
COPIES = 1 / 16
"""Share of the calibrated magnitude by which two copies of a number may differ."""


@dataclass(frozen=True)
class Answers:
    """Decrypted answers, and which of them cannot be right.

    Attributes:
        outputs: by name, ``[count, ...]``; all of them, as they were decrypted.
        refused: share of the slots that cannot be right, by row of the input.
    """

    outputs: dict[str, np.ndarray]
    refused: dict[int, float]

    def shown(self, unchecked: bool = False) -> dict[str, np.ndarray]:
        """The outputs, with NaN for refused ones unless ``unchecked``."""
        if unchecked or not self.refused:
            return self.outputs
        shown = {name: values.copy() for name, values in self.outputs.items()}
        for values in shown.values():
            values[list(self.refused)] = np.nan
        return shown


def judge(
    interface: Module, outputs: Mapping[str, np.ndarray], slots: Mapping[str, np.ndarray] | None
) -> Answers:
    """Find the rows of a batch whose answers cannot be right.

    Args:
        interface: the client's ckks module.
        outputs: answers ``[count, ...]`` by output name.
        slots: decrypted slots ``[ciphertexts, slots]`` by output name, whose copies are compared;
            None if they are not known.
    """
    refused: dict[int, float] = {}
    for op in interface.outputs:
        name = op.attributes["name"]
        values = np.asarray(outputs[name], dtype=np.float64)
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(values) <= OUTSIDE * op.attributes.get("magnitude", np.inf))
        bad |= ~np.isfinite(values)
        shares = bad.reshape(len(bad), -1).mean(axis=1)
        if slots is not None:
            shares = _slot_shares(op, interface, bad, slots[name])
        for row in np.flatnonzero(shares):
            refused[int(row)] = max(refused.get(int(row), 0.0), float(shares[row]))
    return Answers(dict(outputs), dict(sorted(refused.items())))


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
        width = layout.extent("g") * layout.extent("d")
        lacking = width - shape[-1]
        elements = np.pad(elements, [(0, 0)] * (elements.ndim - 1) + [(0, lacking)])
    # Zero is what a layout pads with.
    packed = layout.pack(elements.reshape(layout.shape), repeat=("b",))
    return packed.astype(np.int64) - 1


def _slot_shares(op: Op, interface: Module, bad: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """By row, the share of the slots that are outside or differ from another copy."""
    packed = op.operands[0].type
    assert isinstance(packed, CiphertextType)
    shape, count = list(op.attributes["shape"]), len(bad)
    owner = owners(packed.layout, shape, count).ravel()
    held = np.flatnonzero(owner >= 0)
    owner, values = owner[held], slots.ravel()[held]
    size = int(np.prod(shape))
    first = np.zeros(size)
    first[owner[::-1]] = values[::-1]
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(values - first[owner]) * _factors(op, interface, shape)[owner]
        wrong = ~(differences <= COPIES * op.attributes.get("magnitude", np.inf))
    wrong |= np.pad(bad.ravel(), (0, size - bad.size))[owner]
    rows = owner // (size // shape[0])
    return (
        np.bincount(rows, wrong, shape[0])[:count] / np.bincount(rows, minlength=shape[0])[:count]
    )


def _factors(op: Op, interface: Module, shape: list[int]) -> np.ndarray:
    """The client's factor of each element."""
    if "factor" not in op.attributes:
        return np.ones(int(np.prod(shape)))
    factor = Site([], op.attributes, interface.symbols).constant("factor")
    return np.broadcast_to(np.abs(factor), shape).ravel()
