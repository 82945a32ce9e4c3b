"""Each scalar function is the same in NumPy, torch and mpmath, without a loss of digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from torch_activations import TORCH_ACTIVATIONS

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import ACTIVATIONS, FUNCTIONS, function


def points(name: str) -> np.ndarray:
    return np.linspace(0.01 if FUNCTIONS[name].positive_domain else -30.0, 30.0, 601)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_what_torch_means(name: str) -> None:
    x = torch.from_numpy(points(name))
    np.testing.assert_allclose(
        function(name).torch(x), TORCH_ACTIVATIONS[name](x), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_library_gives_the_same(name: str) -> None:
    x = points(name)
    with mpmath.workdps(40):
        precise = [float(function(name).precise(mpmath.mp, mpmath.mpf(float(v)))) for v in x]
    np.testing.assert_allclose(function(name).numpy(x), precise, rtol=1e-12, atol=1e-300)
    found = function(name).torch(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, precise, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_type_of_the_array_is_kept(name: str) -> None:
    x = points(name).astype(np.float32)
    assert function(name).numpy(x).dtype == np.float32
    assert function(name).torch(torch.from_numpy(x)).dtype == torch.float32


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.gate])
def test_a_gate_gives_its_function(name: str) -> None:
    x, known = points(name), function(name)
    np.testing.assert_allclose(x * (1 + known.gate_numpy(x)) / 2, known.numpy(x), atol=1e-13)
    np.testing.assert_allclose(known.gate_numpy(-x), -known.gate_numpy(x), atol=1e-15)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.linear_beyond])
def test_a_function_is_linear_where_its_entry_says_so(name: str) -> None:
    bound = function(name).linear_beyond
    assert bound is not None
    x = np.concatenate([np.linspace(-30, -bound, 300), np.linspace(bound, 30, 300)])
    assert (np.abs(function(name).numpy(x) - np.maximum(x, 0)) <= 0.0065 * np.abs(x)).all()


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(AtlasError, match="use one of exp, invsqrt, inverse, gelu, gelu_tanh"):
        function("sine")
