"""Functions at the very end of a model, which the client applies to decrypted numbers.

The program returns their operands, such as logits. All of them work along the last axis, which
argmax and squeeze remove.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FinalFunction:
    """A function of decrypted numbers.

    Attributes:
        numpy: the function of an array whose rows are along the last axis; a NaN makes only its own
            row NaN.
        forms: how models write it, see ``passes/frontend/rules/patterns.py``.
        of_elements: whether it maps each number separately.
        keeps_order: whether the greatest element of a row stays the greatest.
    """

    numpy: Callable[[np.ndarray], np.ndarray]
    forms: tuple[str, ...]
    of_elements: bool = False
    keeps_order: bool = False


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _argmax(x: np.ndarray) -> np.ndarray:
    """The argmax as floats, so that a row without an answer can be NaN."""
    return np.where(np.isnan(x).any(axis=-1), np.nan, x.argmax(axis=-1))


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0, -x)


def _normalize(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


_NORM = "clamp_min(linalg_vector_norm(x, 2, axis, True), 1e-12)"
_SHARES = ("softmax(x, axis, dtype)", "_softmax(x, axis, half)")
_LOGS = ("log_softmax(x, axis, dtype)", "_log_softmax(x, axis, half)")
FINAL_FUNCTIONS: Mapping[str, FinalFunction] = {
    "log_softmax": FinalFunction(
        _log_softmax, (*_LOGS, *(f"log({form})" for form in _SHARES)), keeps_order=True
    ),
    "softmax": FinalFunction(
        lambda x: np.exp(_log_softmax(x)),
        (*_SHARES, *(f"exp({form})" for form in _LOGS)),
        keeps_order=True,
    ),
    "argmax": FinalFunction(_argmax, ("argmax(x, axis)",)),
    "log_sigmoid": FinalFunction(
        _log_sigmoid,
        ("log_sigmoid(x)", "log(sigmoid(x))"),
        of_elements=True,
        keeps_order=True,
    ),
    "squeeze": FinalFunction(lambda x: x[..., 0], ()),
    "sigmoid": FinalFunction(
        lambda x: np.exp(_log_sigmoid(x)), ("sigmoid(x)",), of_elements=True, keeps_order=True
    ),
    "normalize": FinalFunction(
        _normalize,
        tuple(f"x / {form}" for form in (f"expand_as({_NORM}, x)", f"expand({_NORM}, to)")),
        keeps_order=True,
    ),
}
"""Name in the outputs of a program -> function."""


def finished(name: str | None, x: np.ndarray) -> np.ndarray:
    """An answer after the final function of its output; unchanged if there is none."""
    if name is None:
        return x
    with np.errstate(all="ignore"):
        return FINAL_FUNCTIONS[name].numpy(x)
