"""Which inputs may be encrypted, and which decrypted numbers are answers.

Inputs must be finite, and not far larger than those of calibration. This does not prove that an
answer will be right: every nonlinear op of the model has a range (``atlasc check-input``,
:func:`atlasc.client.verdict.verdicts`). The runtime library compares magnitudes, says what they
mean, and judges the decrypted slots of an answer (``atlasc/client_data.hpp``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import finished
from atlasc.runtime.interface import Interface
from atlasc.runtime.native import load_library

MASK = "attention_mask"
"""The input that tells tokens, 1, from padding, 0."""


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
        return bool(self.ratio > load_library().OUTSIDE)

    @property
    def large(self) -> bool:
        """Whether it is worth a warning."""
        return bool(self.ratio > load_library().LARGE)

    @property
    def why(self) -> str:
        """In words; empty if the input is not larger than those of calibration."""
        return self.fault or str(load_library().reach_text(self.ratio))


def faults(arrays: Mapping[str, np.ndarray], padding: Mapping[str, int] | None = None) -> list[str]:
    """For each row why it cannot be answered, in words: values that are not finite, or no token but
    padding; empty if it can.

    ``padding`` has the id of padding by the name of the ids, for a program that computes its mask
    from them: the mask must say the same. A bundle names this id, so no mask is read off it: a text
    with the id among its tokens is refused, and nothing of it leaves.
    """
    rows = [""] * len(next(iter(arrays.values())))
    for name, array in arrays.items():
        values = np.asarray(array)
        if name == MASK:
            for row in np.flatnonzero(~values[: len(rows)].any(axis=-1)):
                rows[row] = "it has no token but padding"
        if name in (padding or {}) and MASK in arrays:
            for at, fault in _misplaced(values, np.asarray(arrays[MASK]), (padding or {})[name]):
                rows[at] = rows[at] or fault
        if values.dtype.kind != "f":
            continue
        lost = (~np.isfinite(values)).reshape(len(values), -1).sum(axis=1)
        for row in np.flatnonzero(lost[: len(rows)]):
            many = "1 value" if lost[row] == 1 else f"{lost[row]} values"
            rows[row] = f"{many} of its {name} {'is' if lost[row] == 1 else 'are'} not finite"
    return rows


def _misplaced(ids: np.ndarray, mask: np.ndarray, padding: int) -> Iterator[tuple[int, str]]:
    """Rows whose mask and ids do not say the same, each with the fault."""
    said = f"the id {padding}, which the model takes for padding"
    for row, (one, kept) in enumerate(zip(ids, mask > 0, strict=True)):
        if (kept & (one == padding)).any():
            yield row, f"it has {said}, among its tokens; its attention_mask must be 0 there"
        elif (~kept & (one != padding)).any():
            yield row, f"its attention_mask is 0 at a token; only {said}, may stand there"


def require_finite(
    arrays: Mapping[str, np.ndarray], what: str, padding: Mapping[str, int] | None = None
) -> None:
    """Raise AtlasError, about ``what``, unless all rows can be answered; see `faults`."""
    for row, why in enumerate(faults(arrays, padding)):
        if why:
            raise AtlasError(
                f"{what} {row} cannot be encrypted",
                why=why,
                remedy=load_library().NOT_FINITE_REMEDY,
            )


def shapes(arrays: Mapping[str, np.ndarray]) -> str:
    """Names and shapes of arrays, for a text that must not have their numbers."""
    return ", ".join(f"{name} {list(values.shape)}" for name, values in arrays.items())


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        """Shapes alone: outputs are private, and exact ones tell something of the secret key."""
        return f"<{type(self).__name__}: {shapes(self.outputs)}; {len(self.refused)} refused>"

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


def functions_of(interface: Interface) -> dict[str, str]:
    """The function that ends an output, by the output's name."""
    return {one.name: one.function for one in interface.outputs if one.function}
