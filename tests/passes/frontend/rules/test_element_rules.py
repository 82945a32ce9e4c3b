"""Functions of single elements, norms and layers that models write out equal torch, in random
shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

Form = Callable[["Parts", Any], Any]


class Parts(nn.Module):
    """A form of two hidden states [batch, tokens, features], between linear layers."""

    def __init__(self, form: Form, tokens: int, features: int) -> None:
        super().__init__()
        torch.manual_seed(tokens)
        self.form, self.head = form, nn.Linear(features, 3)
        self.a, self.b = nn.Linear(features, features), nn.Linear(features, features)
        self.norm, self.prelu = nn.BatchNorm1d(features), nn.PReLU(tokens, 0.3)
        for name, number in (("running_mean", 0.5), ("running_var", 2.0)):
            value = getattr(self.norm, name)
            value += number * torch.rand(features)
        self.weight, self.bias = (nn.Parameter(torch.randn(features)) for _ in range(2))
        self.conv = nn.Conv1d(features, features, 1, groups=2)
        self.conv2 = nn.Conv2d(features, 4, 1)
        self.prelu.weight.data += 0.1 * torch.rand(tokens)
        self.register_buffer("low", torch.rand(features) - 1)
        self.register_buffer("kept", torch.rand(tokens, features))

    def forward(self, x):
        return self.form(self, self.a(x))


def _normed(h: Any, deviation: Any) -> Any:
    return (h - h.mean(-1, keepdim=True)) / deviation


def _signed(case: Any, other: Any, at: float = 0.0, turned: bool = False) -> Form:
    """A choice by the sign of h − at."""

    def form(m: Parts, h: Any) -> Any:
        if turned:
            return torch.where(h < at, other(h), case(h))
        return torch.where(h > at, case(h), other(h))

    return form


ELEMENTS: dict[str, Form] = {
    "leaky_relu": lambda m, h: F.leaky_relu(h, 0.2),
    "leaky_relu default": lambda m, h: F.leaky_relu(h),
    "rrelu": lambda m, h: F.rrelu(h),
    "prelu by axis 1": lambda m, h: m.prelu(h),
    "prelu": lambda m, h: F.prelu(h, torch.tensor([0.4])),
    "relu6": lambda m, h: F.relu6(4 * h),
    "hardtanh": lambda m, h: F.hardtanh(h),
    "hardtanh other": lambda m, h: F.hardtanh(h, -0.2, 0.7),
    "hardsigmoid": lambda m, h: F.hardsigmoid(3 * h),
    "hardswish": lambda m, h: F.hardswish(3 * h),
    "clamp": lambda m, h: h.clamp(-0.3, 0.4),
    "clamp 0 to 1": lambda m, h: h.clamp(0, 1),
    "clamp above": lambda m, h: h.clamp(max=0.1),
    "clamp below": lambda m, h: h.clamp(min=0.1),
    "clamp by a tensor": lambda m, h: h.clamp(m.low, m.low + 0.5),
    "clip": lambda m, h: torch.clip(h, -0.3, 0.4),
    "abs": lambda m, h: h.abs(),
    "maximum of a constant": lambda m, h: torch.maximum(h, m.low),
    "minimum of a constant": lambda m, h: torch.minimum(m.low, h),
    "maximum of two": lambda m, h: torch.maximum(h, m.b(h)),
    "minimum of two": lambda m, h: torch.minimum(h, m.b(h)),
    "threshold": lambda m, h: F.threshold(h, 0.2, 0.2),
    "elu": lambda m, h: F.elu(h, 0.5),
    "celu": lambda m, h: F.celu(h, 0.7),
    "selu": lambda m, h: F.selu(h),
    "softplus": lambda m, h: F.softplus(h, 2.0),
    "softsign": lambda m, h: F.softsign(h),
    "logsigmoid": lambda m, h: F.logsigmoid(h),
    "softshrink": lambda m, h: F.softshrink(h, 0.3),
    "tanhshrink": lambda m, h: F.tanhshrink(h),
    "mish": lambda m, h: F.mish(h),
    "glu": lambda m, h: F.glu(torch.cat([h, m.b(h)], -1)),
    "lerp": lambda m, h: torch.lerp(h, m.b(h), 0.25),
    "lerp by a tensor": lambda m, h: torch.lerp(h, m.b(h), m.kept),
    "addcmul": lambda m, h: torch.addcmul(h, h, m.b(h), value=0.5),
    "where relu": _signed(lambda h: h, torch.zeros_like),
    "where a number": _signed(lambda h: h, lambda h: 0.0),
    "where leaky": _signed(lambda h: h, lambda h: 0.1 * h),
    "where turned": _signed(lambda h: h * 2, lambda h: -h / 2, 0.0, True),
    "where shifted": _signed(lambda h: 3 * h - 1, lambda h: h, 0.5),
    "where equal": _signed(lambda h: 2 * h + 1, lambda h: 2 * h + 1, 0.5),
    "where two numbers": _signed(lambda h: 1.5, lambda h: 1.5),
    "where elu": _signed(lambda h: h, torch.expm1),
    "where a square": _signed(lambda h: h * (0.3 - h) / 2 + 1, lambda h: 1 - h, 0.0, True),
    "where xielu": _signed(
        lambda h: 0.7 * h * h + 0.5 * h,
        lambda h: 1.3 * (torch.expm1(torch.minimum(h, torch.zeros(()))) - h) + 0.5 * h,
    ),
    "max": lambda m, h: torch.max(h, m.b(h)) - torch.min(m.a(h), torch.tensor(0.3)),
    "where a constant": lambda m, h: torch.where(m.kept > 0.5, h, m.b(h)),
    "where a constant, a number": lambda m, h: torch.where(m.kept > 0.5, 1.5, h),
    "where >=": lambda m, h: torch.where(h >= 0, h, 0.2 * h),
}
LAYERS: dict[str, Form] = {
    "batch norm of channels": lambda m, h: m.norm(h.mT).mT,
    "batch norm of rows": lambda m, h: m.norm(h.flatten(0, 1)).reshape_as(h),
    "batch norm of a token": lambda m, h: m.norm(h[:, 0]),
    "conv1d of width 1": lambda m, h: m.conv(h.mT).mT,
    "conv2d of width 1": lambda m, h: m.conv2(h.mT[..., None])[..., 0].mT,
    "conv1d and activation": lambda m, h: F.gelu(m.conv(h.mT)).mT,
    "normalize": lambda m, h: F.normalize(h, dim=-1),
    "divided by its length": lambda m, h: h / h.norm(dim=-1, keepdim=True),
    "divided by a vector norm": lambda m, h: h / torch.linalg.vector_norm(h, dim=-1, keepdim=True),
    "rms by sqrt": lambda m, h: h / torch.sqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * m.weight,
    "rms by a power": lambda m, h: h * (h.square().mean(-1, keepdim=True) + 1e-5) ** -0.5,
    "layer norm by sqrt": lambda m, h: m.weight * _normed(
        h, torch.sqrt(h.var(-1, keepdim=True, unbiased=False) + 1e-5)
    ) + m.bias,
    "layer norm by rsqrt": lambda m, h: (h - h.mean(-1, keepdim=True)) * torch.rsqrt(
        (h - h.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True) + 1e-5
    ),
    "layer norm, unbiased": lambda m, h: _normed(h, (h.var(-1, keepdim=True) + 1e-5).sqrt()),
    "layer norm by std": lambda m, h: m.weight * _normed(
        h, h.std(-1, keepdim=True) + 1e-6
    ) + m.bias,
    "layer norm by moments": lambda m, h: _normed(
        h, ((h**2).mean(-1, keepdim=True) - h.mean(-1, keepdim=True) ** 2 + 1e-5).sqrt()
    ),
    "padded features": lambda m, h: F.pad(h, (1, 2)),
    "cut features": lambda m, h: F.pad(h, (-1, 2)),
}  # fmt: skip
SQUEEZED: dict[str, Form] = {
    "a final squeeze": lambda m, h: m.head(h)[..., :1].squeeze(-1),
    "a final choice of one": lambda m, h: m.head(h)[..., :1][..., 0],
    "the last of one": lambda m, h: m.head(h)[..., :1][..., -1],
    "a view of one": lambda m, h: m.head(h)[..., :1].view(h.shape[:2]),
    "a function of a squeeze": lambda m, h: torch.sigmoid(m.head(h)[..., :1].squeeze(-1)),
    "a line of a squeeze": lambda m, h: 2 + m.weight[0] * m.head(h)[..., :1].squeeze(-1),
    "a square of a choice": lambda m, h: (z := m.head(h)[..., :1][..., 0]) * z,
}  # fmt: skip
ENDS: dict[str, Form] = SQUEEZED | {
    "a final view": lambda m, h: m.head(h)[..., 2:].view(h.shape[0], -1),
}
REFUSED: dict[str, tuple[Form, str]] = {
    "threshold that jumps": (lambda m, h: F.threshold(h, 0.2, 0.0), "jumps"),
    "where that jumps": (_signed(lambda h: h, lambda h: h + 1), "jumps"),
    "where a square beyond 1": (
        _signed(lambda h: h * h, lambda h: h, 1.0), "which case is taken depends"
    ),
    "where exp above 0": (
        _signed(lambda h: torch.expm1(h), lambda h: h), "which case is taken depends"
    ),
    "where by another value": (
        lambda m, h: torch.where(m.b(h) > 0, h, 0.0), "which case is taken depends"
    ),
    "softplus that jumps": (lambda m, h: F.softplus(h, 1, 5), "linear at 5"),
    "clamp to one number": (lambda m, h: h.clamp(1, 1), "1.0 everywhere"),
    "clamp by a private bound": (lambda m, h: torch.clamp(h, m.b(h)), "must be constant"),
    "batch norm of a batch": (
        lambda m, h: F.batch_norm(h.mT, None, None, training=True).mT, "model.eval"
    ),
    "conv1d of width 3": (
        lambda m, h: F.conv1d(h.mT, torch.ones(1, h.shape[-1], 3)).mT, "no rule on encrypted"
    ),
    "a softmax of features": (
        lambda m, h: torch.softmax(m.b(torch.tanh(h)), -1) * h, "only the softmax over the keys"
    ),
    "tokens around others": (lambda m, h: F.pad(h, (0, 0, 1, 0)), "only on the client"),
}  # fmt: skip


def _case(name: str, form: Form) -> tuple[Any, np.ndarray]:
    """A model of a form, and an input, of a shape by the name."""
    random = np.random.default_rng(sum(map(ord, name)))
    tokens, features = int(random.integers(2, 7)), 2 * int(random.integers(2, 6))
    x = random.normal(size=(int(random.integers(1, 4)), tokens, features)).astype(np.float32)
    return Parts(form, tokens, features).eval(), x


def _compared(name: str, form: Form) -> Module:
    model, x = _case(name, form)
    with torch.no_grad():
        wanted = model(torch.from_numpy(x)).numpy()
    module = trace(model, {"x": x}, name="m")
    for written in (module, run_passes(module, [Canonicalise()])):
        (op,) = written.outputs
        found = finished(op.attributes.get("function"), interpret(written, {"x": x})["output"])
        np.testing.assert_allclose(found, wanted, atol=2e-5)
    return module


ALL = ELEMENTS | LAYERS | ENDS


@pytest.mark.parametrize("name", ALL)
def test_a_form_equals_torch(name: str) -> None:
    _compared(name, ALL[name])


@pytest.mark.parametrize("name", SQUEEZED)
def test_a_last_axis_of_one_element_is_removed_by_the_client(name: str) -> None:
    (op,) = _compared(name, SQUEEZED[name]).outputs
    assert op.attributes["function"] == "squeeze"


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_polynomial_is_refused(name: str) -> None:
    form, reason = REFUSED[name]
    model, x = _case(name, form)
    with pytest.raises(AtlasError, match="cannot be compiled") as caught:
        trace(model, {"x": x}, name="m")
    assert reason in str(caught.value) and "test_element_rules.py:" in str(caught.value)


def test_a_clamp_is_one_polynomial() -> None:
    ops = [op.name for op in _compared("clamp", ELEMENTS["clamp"]).ops]
    assert ops.count("nn.clip") == 1 and "nn.relu" not in ops


def test_a_norm_is_one_op() -> None:
    for name, op in {"rms by sqrt": "nn.rms_norm", "layer norm by std": "nn.layer_norm"}.items():
        ops = [one.name for one in _compared(name, LAYERS[name]).ops]
        assert op in ops and "nn.mul" not in ops
