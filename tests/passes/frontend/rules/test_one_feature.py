"""Values of one feature beside features, such as gates: the layer before makes copies, because the
slots of a ciphertext do not broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

TOKENS, FEATURES = 3, 6
Form = Callable[["Gated", Any], Any]
X = np.random.default_rng(0).normal(size=(24, TOKENS, FEATURES)).astype(np.float32)


class Gated(nn.Module):
    """A form of hidden states, with a layer that gives one number for each token."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.gate = form, nn.Linear(FEATURES, 1)
        self.inner, self.head = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 2)
        self.register_buffer("row", torch.rand(FEATURES))
        self.register_buffer("table", torch.rand(TOKENS, FEATURES))

    def forward(self, x: Any) -> Any:
        return self.head(self.form(self, self.inner(x))).mean(1)


FORMS: dict[str, Form] = {
    "gate": lambda m, h: h * m.gate(h),
    "gate with an activation": lambda m, h: torch.sigmoid(m.gate(h)) * h,
    "gate of parts": lambda m, h: h * nn.functional.hardsigmoid(m.gate(h)),
    "sum": lambda m, h: h + m.gate(h),
    "difference": lambda m, h: m.gate(h) - h,
    "outer product": lambda m, h: m.gate(h) * m.row,
    "outer product by token": lambda m, h: m.table * m.gate(h),
    "outer sum": lambda m, h: m.row - m.gate(h),
    "expanded": lambda m, h: m.gate(h).expand(-1, -1, FEATURES) * h,
    "expanded as": lambda m, h: h + m.gate(h).expand_as(h),
    "mean of features": lambda m, h: h * h.mean(-1, keepdim=True),
    "sum of features": lambda m, h: h - h.sum(2)[..., None],
    "one of many": lambda m, h: h[..., :1] * h,
}


def _modules(form: Form) -> tuple[nn.Module, Module, Module]:
    model = Gated(form).eval()
    module = trace(model, {"x": X[:2]}, name="m")
    return model, module, run_passes(module, [Canonicalise()])


@pytest.mark.parametrize("name", FORMS)
def test_one_feature_beside_several_equals_torch(name: str) -> None:
    model, *modules = _modules(FORMS[name])
    with torch.no_grad():
        wanted = model(torch.from_numpy(X)).numpy()
    for module in modules:
        for op in module.ops:  # all values on the server have one width
            if op.name in ("nn.mul", "nn.add"):
                assert len({value.tensor.shape for value in op.operands}) == 1
        (found,) = interpret(module, {"x": X}).values()
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["gate", "gate with an activation"])
def test_the_copies_are_rows_of_the_gate(name: str) -> None:
    _, _, module = _modules(FORMS[name])
    layers = [op for op in module.ops if op.name == "nn.linear"]
    assert len(layers) == 3
    weights = [module.symbols[op.attributes["weight"].name] for op in layers]
    assert any(len(one) == FEATURES and (one == one[:1]).all() for one in weights)


def test_the_client_needs_no_copies() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.gate = nn.Embedding(9, FEATURES), nn.Embedding(9, 1)
            self.layers = nn.ModuleList([nn.Linear(FEATURES, 2)])

        def forward(self, input_ids: Any) -> Any:
            return self.layers[0](self.table(input_ids) * self.gate(input_ids))

    model, ids = Inner().eval(), np.arange(8).reshape(2, 4)
    module = trace(model, {"input_ids": ids}, name="m")
    assert [op.name for op in module.ops].count("nn.linear") == 1
    with torch.no_grad():
        wanted = model(torch.from_numpy(ids)).numpy()
    np.testing.assert_allclose(interpret(module, {"input_ids": ids})["output"], wanted, atol=1e-6)


@pytest.mark.parametrize(
    "form",
    [
        lambda m, h: h[:, :1].expand(-1, TOKENS, -1),
        lambda m, h: h[:, :, None].expand(-1, -1, 2, -1),
    ],
)
def test_other_axes_are_not_expanded(form: Form) -> None:
    with pytest.raises(AtlasError, match="only a last axis of one element is copied") as refused:
        trace(Gated(form).eval(), {"x": X[:2]}, name="m")
    assert "test_one_feature.py:" in str(refused.value)


@pytest.mark.parametrize(
    "name", ["gate with an activation", "outer product by token", "mean of features"]
)
def test_a_program_with_a_gate(name: str) -> None:
    model = Gated(FORMS[name]).eval()
    program = atlasc.compile(model, {"x": X}, recipe="is", target="sim")
    with torch.no_grad():
        wanted = model(torch.from_numpy(X[:4])).numpy()
    answer = program.run({"x": X[:4]})
    assert not answer.refused and answer.max_error < 1e-9
    np.testing.assert_allclose(answer.outputs["output"], wanted, atol=1e-4)
