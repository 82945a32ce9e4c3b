"""The scalar functions that are approximated; each entry has all facts about its function.

One entry in ``ACTIVATIONS`` adds an activation. The op ``nn.NAME``, its recognition in PyTorch
models, its evaluation, calibration, approximation and simulation follow from the entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError

BLOCK = 1 << 14
"""Elements of which torch computes a function at once. It would divide more of them among threads,
and the caller has threads of its own."""


@dataclass(frozen=True)
class ScalarFunction:
    """A real function of one variable.

    Attributes:
        name: its name; an activation's op is ``nn.NAME``.
        summary: one line for the IR reference.
        meaning: the function of x, given the elementary functions of a library (see ``_library``).
            No branch may lose digits by cancellation, because coefficients are computed with it.
        forms: how models write the function, as aten ops on x, such as ``relu(x) ** 2``: what
            ``torch.export`` shows, under the names of ``torch.ops.aten``. Arguments that a form
            leaves out must have their default. See ``passes/frontend/rules/patterns.py``.
        positive_domain: whether the function is only defined for positive arguments.
        gate: an odd function s with limits -1 and 1 such that the function is x (1 + s(x)) / 2.
        linear_beyond: magnitude of x beyond which the function is max(x, 0) up to about 0.6 percent
            of x.
    """

    name: str
    summary: str
    meaning: Callable[[Any, Any], Any]
    forms: tuple[str, ...] = ()
    positive_domain: bool = False
    gate: Callable[[Any, Any], Any] | None = None
    linear_beyond: float | None = None

    def numpy(self, x: Any) -> Any:
        """The function of a NumPy array, in its dtype.

        Arrays of float32 go through torch where it is installed, block by block. Its kernels are
        vectorised; SciPy's erf and NumPy's cube are not: a GELU takes 4 to 40 times as long there.
        """
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or not _has_torch():
            return self.meaning(_numpy(), x)
        import torch

        rows, result = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, np.float32)
        for start in range(0, x.size, BLOCK):
            block = slice(start, start + BLOCK)
            result[block] = self.torch(torch.tensor(rows[block])).numpy()
        return result.reshape(x.shape)

    def torch(self, x: Any) -> Any:
        """The function of a torch tensor."""
        return self.meaning(_torch(), x)

    def precise(self, mp: Any, x: Any) -> Any:
        """The function of an mpmath number, in the precision of the mpmath context ``mp``."""
        return self.meaning(_mpmath(mp), x)

    def gate_numpy(self, x: Any) -> Any:
        """The gate at a NumPy array, for a function that has a gate."""
        assert self.gate is not None
        return self.gate(_numpy(), x)


def _library(source: Any, special: Any, **others: Any) -> SimpleNamespace:
    """Elementary functions under the names that ``meaning`` uses.

    ``root`` is the square root of a number, which must keep the dtype of an array.
    """
    shared = {name: getattr(source, name) for name in ("sqrt", "exp", "expm1", "tanh")}
    shared |= {"pi": math.pi, "root": math.sqrt, "erf": special.erf, "erfc": special.erfc}
    return SimpleNamespace(**{**shared, **others})


@cache
def _numpy() -> SimpleNamespace:
    from scipy import special

    return _library(
        np,
        special,
        sigmoid=special.expit,
        softplus=lambda x: np.logaddexp(x, 0),
        above_zero=lambda x: np.maximum(x, 0),
        below_zero=lambda x: np.minimum(x, 0),
    )


@cache
def _has_torch() -> bool:
    return find_spec("torch") is not None


@cache
def _torch() -> SimpleNamespace:
    import torch

    return _library(
        torch,
        torch,
        sigmoid=torch.sigmoid,
        softplus=lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        above_zero=torch.relu,
        below_zero=lambda x: x.clamp(max=0),
    )


@cache
def _mpmath(mp: Any) -> SimpleNamespace:
    return _library(
        mp,
        mp,
        pi=mp.pi,
        root=mp.sqrt,
        sigmoid=lambda x: 1 / (1 + mp.exp(-x)),
        softplus=lambda x: mp.log1p(mp.exp(x)),
        above_zero=lambda x: max(x, mp.mpf(0)),
        below_zero=lambda x: min(x, mp.mpf(0)),
    )


def _tanh_argument(m: Any, x: Any) -> Any:
    return m.root(2 / m.pi) * (x + 0.044715 * x**3)


_SELU, _SELU_CURVE = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
_TANH_FORM = f"(1 + tanh({math.sqrt(2 / math.pi)} * (x + 0.044715 * x**3)))"
_BLOOM_FORM = f"(1 + tanh({math.sqrt(2 / math.pi)} * x * (1 + 0.044715 * x * x)))"
_ERF_FORM = f"(1 + erf(x / {math.sqrt(2)}))"

ACTIVATIONS = {
    f.name: f
    for f in (
        ScalarFunction(
            "gelu",
            "Gaussian error linear unit, x · (1 + erf(x/√2)) / 2.",
            lambda m, x: x * m.erfc(-x / m.root(2)) / 2,
            ("gelu(x)", f"0.5 * x * {_ERF_FORM}", f"x * 0.5 * {_ERF_FORM}"),
            gate=lambda m, x: m.erf(x / m.root(2)),
            linear_beyond=3.5,
        ),
        ScalarFunction(
            "gelu_tanh",
            "The tanh form of GELU, x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2.",
            lambda m, x: x * m.sigmoid(2 * _tanh_argument(m, x)),
            ("gelu(x, approximate='tanh')", f"0.5 * x * {_TANH_FORM}", f"x * 0.5 * {_BLOOM_FORM}"),
            gate=lambda m, x: m.tanh(_tanh_argument(m, x)),
            linear_beyond=3.5,
        ),
        ScalarFunction(
            "silu",
            "x · sigmoid(x).",
            lambda m, x: x * m.sigmoid(x),
            ("silu(x)", "x * sigmoid(x)"),
            gate=lambda m, x: m.tanh(x / 2),
            linear_beyond=7.0,
        ),
        ScalarFunction(
            "quick_gelu",
            "x · sigmoid(1.702 · x).",
            lambda m, x: x * m.sigmoid(1.702 * x),
            ("x * sigmoid(1.702 * x)",),
            gate=lambda m, x: m.tanh(0.851 * x),
            linear_beyond=4.0,
        ),
        ScalarFunction(
            "mish",
            "x · tanh(log(1 + eˣ)).",
            lambda m, x: x * m.tanh(m.softplus(x)),
            ("mish(x)", "x * tanh(softplus(x))"),
            linear_beyond=7.0,
        ),
        ScalarFunction(
            "softplus",
            "log(1 + eˣ).",
            lambda m, x: m.softplus(x),
            ("softplus(x)", "log(1 + exp(x))"),
            linear_beyond=7.0,
        ),
        ScalarFunction(
            "elu",
            "x for x > 0, otherwise eˣ − 1.",
            lambda m, x: m.above_zero(x) + m.expm1(m.below_zero(x)),
            ("elu(x)",),
        ),
        ScalarFunction("sigmoid", "1 / (1 + e⁻ˣ).", lambda m, x: m.sigmoid(x), ("sigmoid(x)",)),
        ScalarFunction("tanh", "Hyperbolic tangent.", lambda m, x: m.tanh(x), ("tanh(x)",)),
        ScalarFunction("relu", "max(x, 0).", lambda m, x: m.above_zero(x), ("relu(x)",)),
        ScalarFunction(
            "relu_squared",
            "max(x, 0)².",
            lambda m, x: m.above_zero(x) ** 2,
            ("square(relu(x))", "relu(x) ** 2", "relu(x) * relu(x)"),
        ),
        ScalarFunction(
            "clip",
            "x between 0 and 1.",
            lambda m, x: m.above_zero(x) - m.above_zero(x - 1),
            ("hardtanh(x, 0.0, 1.0)", "clamp(x, 0.0, 1.0)"),
        ),
        ScalarFunction(
            "selu",
            "1.0507 · x for x > 0, otherwise 1.7581 · (eˣ − 1).",
            lambda m, x: _SELU * (m.above_zero(x) + _SELU_CURVE * m.expm1(m.below_zero(x))),
            ("selu(x)",),
        ),
        ScalarFunction(
            "softsign",
            "x / (1 + |x|).",
            lambda m, x: x / (1 + m.above_zero(x) - m.below_zero(x)),
            ("x / (1 + abs(x))",),
        ),
    )
}
FUNCTIONS = {
    "exp": ScalarFunction("exp", "eˣ.", lambda m, x: m.exp(x)),
    "invsqrt": ScalarFunction("invsqrt", "1/√x.", lambda m, x: 1 / m.sqrt(x), (), True),
    "inverse": ScalarFunction("inverse", "1/x.", lambda m, x: 1 / x, (), True),
    **ACTIVATIONS,
}


def function(name: str) -> ScalarFunction:
    """The function of a name; raises AtlasError with the known names if there is none."""
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise AtlasError(
            f"no scalar function is called {name!r}", remedy=f"use one of {', '.join(FUNCTIONS)}"
        ) from None
