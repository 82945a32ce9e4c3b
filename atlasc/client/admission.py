"""Which inputs may be encrypted: finite ones, not far larger than those of calibration.

This needs the client's part of a bundle alone. It does not prove that an answer will be right:
every nonlinear op of the model has a range (``atlasc check-input``, :mod:`atlasc.run.ranges`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.client.answers import OUTSIDE
from atlasc.ir.errors import AtlasError
from atlasc.ir.functions import encrypted_input
from atlasc.ir.module import Module

_TINY = 1e-300
LARGE = 1.05
"""Times the calibrated magnitude: larger inputs get a warning. Calibrated ranges have at least this
margin."""
REMEDY = (
    "prepare it like the calibration data, for example pixels / 255; --unchecked encrypts it anyway"
)


@dataclass(frozen=True)
class Reach:
    """The magnitude of an input.

    Attributes:
        ratio: of its encrypted values to those of calibration; infinite if one is not finite.
        why: in words; empty if the input is not larger than those of calibration.
    """

    ratio: float
    why: str = ""

    @property
    def finite(self) -> bool:
        """Whether it can be encrypted at all."""
        return bool(np.isfinite(self.ratio))

    @property
    def refused(self) -> bool:
        """Whether it is encrypted only with ``--unchecked``."""
        return not self.ratio <= OUTSIDE

    @property
    def large(self) -> bool:
        """Whether it is worth a warning."""
        return not self.ratio <= LARGE


def finite_rows(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """For each row, the values that are not finite, in words; empty if all are finite."""
    rows = [""] * len(next(iter(arrays.values())))
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.dtype.kind != "f":
            continue
        lost = (~np.isfinite(values)).reshape(len(values), -1).sum(axis=1)
        for row in np.flatnonzero(lost[: len(rows)]):
            many = "1 value" if lost[row] == 1 else f"{lost[row]} values"
            rows[row] = f"{many} of its {name} {'is' if lost[row] == 1 else 'are'} not finite"
    return rows


def require_finite(arrays: Mapping[str, np.ndarray], what: str) -> None:
    """Raise AtlasError, about ``what``, unless all rows are finite."""
    for row, why in enumerate(finite_rows(arrays)):
        if why:
            raise AtlasError(
                f"{what} {row} cannot be encrypted",
                why=why,
                remedy="leave it out, or repair it: NaN and infinite values spoil a whole batch",
            )


def reaches(interface: Module, prepared: Mapping[str, np.ndarray]) -> list[Reach]:
    """The magnitude of each row of the values that are to be encrypted.

    Args:
        interface: the client's ckks module; its inputs carry ``magnitude``, that of the slots.
        prepared: tensors by input name, finite or not.
    """
    found: list[Reach] = []
    for op in interface.ops:
        if op.name != "ckks.input":
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            tensor = np.asarray(prepared[op.attributes["name"]], dtype=np.float64)
            stored = encrypted_input(op.site(interface.symbols), tensor)
            greatest = np.abs(stored).reshape(len(stored), -1).max(axis=1)
        ratios = greatest / max(op.attributes.get("magnitude", np.inf), _TINY)
        ratios[~np.isfinite(greatest)] = np.inf
        found = found or [Reach(0.0)] * len(ratios)
        found = [
            max(old, _reach(ratio), key=lambda reach: reach.ratio)
            for old, ratio in zip(found, ratios)
        ]
    return found


def _reach(ratio: float) -> Reach:
    if not np.isfinite(ratio):
        return Reach(np.inf, "what is encrypted of it is not finite")
    if ratio <= LARGE:
        return Reach(float(ratio))
    return Reach(float(ratio), f"it reaches {ratio:.3g} times what calibration saw")
