"""Checks in the clear: which inputs may be encrypted, and which decrypted numbers are answers.

Both need the client's part of a bundle alone, whose attributes have the magnitudes of calibration.

* Inputs must be finite, and not far larger than those of calibration. This does not prove that an
  answer will be right: every nonlinear op of the model has a range (``atlasc check-input``,
  :func:`atlasc.client.verdict.verdicts`).
* A ciphertext that exploded decrypts to numbers like any other. An answer far above the largest
  output of calibration is refused. Many slots of an answer should hold the same number: the layout
  replicates values, and the padding of a batch copies the first input. If they differ by more than
  any noise, the ciphertext exploded or is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import encrypted_input
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op
from atlasc.passes.execution.kernels.context import blocked

MASK = "attention_mask"
"""The input that tells tokens, 1, from padding, 0."""
OUTSIDE = 4.0
"""Times the greatest magnitude of calibration: inputs and answers beyond it are refused. Other
inputs may be larger than those of calibration, but a polynomial that explodes exceeds any such
factor at once."""
LARGE = 1.05
"""Times the calibrated magnitude: larger inputs get a warning. Calibrated ranges have at least this
margin."""
COPIES = 1 / 16
"""Share of the calibrated magnitude by which two copies of a number may differ."""
REMEDY = (
    "prepare it like the calibration data, for example pixels / 255; --unchecked encrypts it anyway"
)


@dataclass(frozen=True)
class Reach:
    """The magnitude of an input.

    Attributes:
        ratio: of its encrypted values to those of calibration; infinite if one is not finite.
        fault: why the input itself cannot be answered; empty if it can.
    """

    ratio: float
    fault: str = ""

    @property
    def finite(self) -> bool:
        """Whether it can be encrypted at all."""
        return bool(np.isfinite(self.ratio))

    @property
    def refused(self) -> bool:
        """Whether it is encrypted only with ``--unchecked``."""
        return self.ratio > OUTSIDE

    @property
    def large(self) -> bool:
        """Whether it is worth a warning."""
        return self.ratio > LARGE

    @property
    def why(self) -> str:
        """In words; empty if the input is not larger than those of calibration."""
        if not self.finite:
            return self.fault or "what is encrypted of it is not finite"
        return f"it reaches {self.ratio:.3g} times what calibration saw" if self.large else ""


def faults(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """For each row why it cannot be answered, in words: values that are not finite, or no token but
    padding; empty if it can.
    """
    rows = [""] * len(next(iter(arrays.values())))
    for name, array in arrays.items():
        values = np.asarray(array)
        if name == MASK:
            for row in np.flatnonzero(~values[: len(rows)].any(axis=-1)):
                rows[row] = "it has no token but padding"
        if values.dtype.kind != "f":
            continue
        lost = (~np.isfinite(values)).reshape(len(values), -1).sum(axis=1)
        for row in np.flatnonzero(lost[: len(rows)]):
            many = "1 value" if lost[row] == 1 else f"{lost[row]} values"
            rows[row] = f"{many} of its {name} {'is' if lost[row] == 1 else 'are'} not finite"
    return rows


def require_finite(arrays: Mapping[str, np.ndarray], what: str) -> None:
    """Raise AtlasError, about ``what``, unless all rows can be answered."""
    for row, why in enumerate(faults(arrays)):
        if why:
            raise AtlasError(
                f"{what} {row} cannot be encrypted",
                why=why,
                remedy="leave it out, or repair it: NaN and infinite values spoil a whole batch",
            )


def ratios(interface: Module, prepared: Mapping[str, np.ndarray]) -> np.ndarray:
    """Greatest magnitude of each row of what is to be encrypted, tensors by input name, in units of
    the ``magnitude`` that calibration saw; infinite where a value is not finite.
    """
    found = []
    for op in interface.inputs:
        with np.errstate(over="ignore", invalid="ignore"):
            tensor = np.asarray(prepared[op.attributes["name"]], dtype=np.float64)
            stored = encrypted_input(op.site(interface.symbols), tensor)
            greatest = np.abs(stored).reshape(len(stored), -1).max(axis=1)
            known = max(op.attributes.get("magnitude", np.inf), 1e-300)
            found.append(np.where(np.isfinite(greatest), greatest / known, np.inf))
    return np.max(found, axis=0)


@dataclass(frozen=True)
class Answers:
    """Decrypted answers, and which of them cannot be right.

    Attributes:
        outputs: by name, ``[count, ...]``; all of them, as they were decrypted: before the function
            that may end an output.
        refused: share of the slots that cannot be right, by row of the input.
        functions: which function ends an output, by its name (``atlasc/ir/final_functions.py``).
    """

    outputs: dict[str, np.ndarray]
    refused: dict[int, float]
    functions: dict[str, str] = field(default_factory=dict, kw_only=True)

    def shown(self, unchecked: bool = False) -> dict[str, np.ndarray]:
        """The model's answers: outputs after the functions that end them, with NaN for refused ones
        unless ``unchecked``.
        """
        shown = self.finished(self.outputs)
        if unchecked or not self.refused:
            return shown
        shown = {name: np.array(values) for name, values in shown.items()}
        for values in shown.values():
            values[list(self.refused)] = np.nan
        return shown

    def finished(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs after the functions that end them."""
        return {name: finished(self.functions.get(name), y) for name, y in outputs.items()}


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
    refused = dict(sorted(refused.items()))
    return Answers(dict(outputs), refused, functions=functions_of(interface))


def functions_of(interface: Module) -> dict[str, str]:
    """The function that ends an output, by the output's name."""
    known = (op.attributes for op in interface.outputs)
    return {of["name"]: of["function"] for of in known if "function" in of}


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


def _slot_shares(op: Op, interface: Module, bad: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """By row, the share of the slots that are outside or differ from another copy."""
    shape, count = list(op.attributes["shape"]), len(bad)
    owner = owners(op.operands[0].ciphertext.layout, shape, count).ravel()
    held = np.flatnonzero(owner >= 0)
    owner, values = owner[held], slots.ravel()[held]
    size = int(np.prod(shape))
    first, factors = np.zeros(size), np.ones(size)
    first[owner[::-1]] = values[::-1]
    if "factor" in op.attributes:  # the client's, of each element
        factor = op.site(interface.symbols).constant("factor")
        factors = np.broadcast_to(np.abs(factor), shape).ravel()
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(values - first[owner]) * factors[owner]
        wrong = ~(differences <= COPIES * op.attributes.get("magnitude", np.inf))
    wrong |= np.pad(bad.ravel(), (0, size - bad.size))[owner]
    rows = owner // (size // shape[0])
    return (
        np.bincount(rows, wrong, shape[0])[:count] / np.bincount(rows, minlength=shape[0])[:count]
    )
