"""The scalar functions that are approximated, each in high precision and in double.

The high-precision form is what coefficients are computed from; the double form is the cleartext
meaning that a user compares with. Both are total on the ranges that they are used on: no branch
loses digits by cancellation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class ScalarFunction:
    """A real function of one variable.

    Attributes:
        name: the name under which fits are cached.
        precise: the function on an mpmath number, given the mpmath context to work in.
        double: the function on a numpy array of float64.
        positive_domain: True where the function is only defined for positive arguments.
    """

    name: str
    precise: Callable[[Any, Any], Any]
    double: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    positive_domain: bool = False


def _gelu_precise(mp: Any, x: Any) -> Any:
    return x * mp.erfc(-x / mp.sqrt(2)) / 2


def _gelu_tanh_precise(mp: Any, x: Any) -> Any:
    inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)
    return x / (1 + mp.exp(-2 * inner))


def _gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import erfc

    return 0.5 * x * erfc(-x / np.sqrt(2.0))


def _gelu_tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import expit

    return x * expit(2.0 * np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))


def _silu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import expit

    return x * expit(x)


FUNCTIONS: dict[str, ScalarFunction] = {
    f.name: f
    for f in (
        ScalarFunction("exp", lambda mp, x: mp.exp(x), np.exp),
        ScalarFunction("invsqrt", lambda mp, x: 1 / mp.sqrt(x), lambda x: 1 / np.sqrt(x), True),
        ScalarFunction("inverse", lambda mp, x: 1 / x, lambda x: 1 / x, True),
        ScalarFunction("gelu", _gelu_precise, _gelu),
        ScalarFunction("gelu_tanh", _gelu_tanh_precise, _gelu_tanh),
        ScalarFunction("silu", lambda mp, x: x / (1 + mp.exp(-x)), _silu),
        ScalarFunction("tanh", lambda mp, x: mp.tanh(x), np.tanh),
        ScalarFunction("relu", lambda mp, x: x if x > 0 else mp.mpf(0), lambda x: np.maximum(x, 0)),
    )
}


def function(name: str) -> ScalarFunction:
    """The function of that name; raises AtlasError with the known names otherwise."""
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AtlasError(
            f"no scalar function is called {name!r}", remedy=f"use one of {', '.join(FUNCTIONS)}"
        ) from None
