"""Inputs that a constant mask chooses: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace

BATCH, TOKENS, FEATURES = 2, 4, 6
X = np.random.default_rng(0).normal(size=(BATCH, TOKENS, FEATURES)).astype(np.float32)
Form = Callable[["Adapted", Any], Any]


class Adapted(nn.Module):
    """A layer for each of two kinds of inputs, of which ``kind`` is that of all of them."""

    def __init__(self, form: Form, kind: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.kind = form, kind
        self.inner = nn.Linear(FEATURES, FEATURES)
        self.adapters = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.register_buffer("kinds", torch.full((BATCH,), kind))

    def forward(self, x: Any) -> Any:
        return self.form(self, self.inner(x))


def adapted(m: Adapted, h: Any) -> Any:
    result = torch.zeros_like(h)
    for number, adapter in enumerate(m.adapters):
        chosen = m.kinds == number
        result[chosen] = adapter(h[chosen])
    return result + h


def reordered(m: Adapted, h: Any) -> Any:
    return h[torch.arange(BATCH - 1, -1, -1)]


EQUAL: dict[str, Form] = {
    "a mask": adapted,
    "a mask and a view": lambda m, h: h[m.kinds >= 0].flatten(1).view(BATCH, TOKENS, FEATURES),
    "all numbers": lambda m, h: h[torch.arange(BATCH)],
    "nobody": lambda m, h: h.index_put((m.kinds < 0,), h[m.kinds < 0] * h[m.kinds < 0]),
}
REFUSED: dict[str, tuple[Form, str]] = {
    "another order": (reordered, "each input is answered alone"),
    "one of two": (lambda m, h: h[torch.arange(BATCH) > 0], "each input is answered alone"),
    "a sum into all": (
        lambda m, h: h.index_put((torch.arange(BATCH),), h * h, accumulate=True),
        "aten.index_put",
    ),
    "a private mask": (lambda m, h: h[h.sum((1, 2)) > 0], "depends on"),
}


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("name", EQUAL)
def test_all_inputs_or_none_are_chosen_without_an_op(name: str, kind: int) -> None:
    model = Adapted(EQUAL[name], kind).eval()
    module = trace(model, {"x": X}, name="m")
    allowed = {"nn.input", "nn.encrypt", "nn.linear", "nn.add", "nn.reshape", "nn.output"}
    assert {op.name for op in module.ops} <= allowed
    layers = [op.attributes["weight"].name for op in module.ops if op.name == "nn.linear"]
    if name == "a mask":
        assert layers == ["inner.weight", f"adapters.{kind}.weight"]
    with torch.no_grad():
        wanted = model(torch.from_numpy(X)).numpy()
    (found,) = interpret(module, {"x": X}).values()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_other_choices_of_inputs_are_refused(name: str) -> None:
    form, said = REFUSED[name]
    with pytest.raises(AtlasError) as refused:
        trace(Adapted(form, 0).eval(), {"x": X}, name="m")
    assert said in str(refused.value), refused.value
    assert "test_choices.py" in str(refused.value)
