"""A model that writes a state: the program answers as its first call, or the model is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace

X = np.random.default_rng(0).standard_normal((2, 6, 8)).astype(np.float32)
Form = Callable[["Stateful", Any, Any], Any]


class Stateful(nn.Module):
    """A form of an input, of an answer and of the states of the module."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.inner, self.head = form, nn.Linear(8, 8), nn.Linear(8, 3)
        self.register_buffer("last", torch.zeros(2, 3))
        self.register_buffer("loose", torch.zeros(2, 3), persistent=False)
        self.register_buffer("saved", torch.zeros(2, 3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.zeros(1, 3))

    def forward(self, x):
        return self.form(self, x, self.head(torch.tanh(self.inner(x)).mean(1)))


def _first(first: Any, *rest: Any) -> Any:
    """The first of some values; the others are evaluated before it is returned."""
    return first


def _bind(m: Stateful, name: str, value: Any) -> Any:
    setattr(m, name, value)
    return value


def _no_grad(m: Stateful, y: Any) -> Any:
    with torch.no_grad():
        m.last.copy_(y.detach() * 2)
    return y + m.last


def _parameter(m: Stateful, y: Any) -> Any:
    with torch.no_grad():
        m.head.bias.mul_(0.5)
    return y


HARMLESS: dict[str, Form] = {
    "a mean that is kept": lambda m, x, y: _first(y, m.last.copy_(0.5 * m.last + 0.5 * y)),
    "calls are counted": lambda m, x, y: _first({"logits": y}, m.calls.add_(1)),
    "a buffer is bound again": lambda m, x, y: _first(y, _bind(m, "last", m.last + y)),
    "not persistent": lambda m, x, y: _first(y, m.loose.add_(y)),
    "a table that grows": lambda m, x, y: (
        y + (_bind(m, "table", torch.ones(6, 3)) if len(m.table) < 6 else m.table).sum(0)
    ),
    "written, then read": lambda m, x, y: m.last.copy_(y) * 2,
    "zero, then a sum": lambda m, x, y: m.last.zero_().add_(y) * 2,
    "filled, then read": lambda m, x, y: y + m.last.fill_(2.0),
    "without gradients": lambda m, x, y: _no_grad(m, y),
    "what it held is written again": lambda m, x, y: _first(y + m.last, m.last.copy_(m.saved)),
    "a part": lambda m, x, y: _first(y, m.last[:, 0].copy_(y[:, 0])),
    "the input": lambda m, x, y: y + m.head(x.mul_(2))[:, 0],
    "several outputs": lambda m, x, y: _first((y, None, {"a": y * 2}, 3), m.last.add_(y)),
    "beside a view": lambda m, x, y: _first(y.view(-1).add_(1).view(2, 3), m.last.add_(y)),
}
REFUSED: dict[str, tuple[Form, str]] = {
    "a running mean": (lambda m, x, y: y + _bind(m, "last", 0.5 * m.last + 0.5 * y), "last"),
    "read before": (lambda m, x, y: _first(y + m.last, m.last.copy_(y)), "last"),
    "calls are read": (lambda m, x, y: y * m.calls.add_(1), "calls"),
    "not persistent": (lambda m, x, y: y + m.loose.add_(1), "loose"),
    "a part": (lambda m, x, y: _first(m.last * 1, m.last[:, 0].copy_(y[:, 0])) + y, "last"),
    "filled after": (lambda m, x, y: _first(y + m.last, m.last.fill_(2.0)), "last"),
    "a parameter": (lambda m, x, y: _parameter(m, y), "bias"),
    "the state is returned": (lambda m, x, y: m.calls.add_(1), "calls"),
}


def _numbers(value: Any) -> np.ndarray:
    """The first tensor of what a forward returned."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value.detach().numpy()


def _calls(model: nn.Module) -> list[np.ndarray]:
    """The answers of two calls with one input."""
    own = copy.deepcopy(model)
    with torch.no_grad():
        return [_numbers(own(torch.from_numpy(X.copy()))).copy() for _ in range(2)]


ARCHIVED = ("a mean that is kept", "without gradients", "calls are read", "a parameter")


def _sources(name: str, model: nn.Module) -> list[Any]:
    """A module, and two archives of some: with gradients the state is written in a region."""
    if name not in ARCHIVED:
        return [model]
    x = {"x": torch.from_numpy(X.copy())}
    with torch.no_grad():
        without = torch.export.export(model, (), x, strict=False)
    return [model, without, torch.export.export(model, (), x, strict=False)]


@pytest.mark.parametrize("name", HARMLESS)
def test_a_state_that_no_answer_reads_is_left_out(name: str) -> None:
    model = Stateful(HARMLESS[name]).eval()
    first, second = _calls(model)
    np.testing.assert_array_equal(first, second)
    for source in _sources(name, model):
        told: dict[str, str] = {}
        module = trace(source, {"x": X.copy()}, name="m", note=told.setdefault)
        (found,) = interpret(module, {"x": X}).values()
        np.testing.assert_allclose(found, first, atol=1e-5)
        said = [what for what in told if "the model writes the" in what or "its input x" in what]
        assert len(said) == (name != "what it held is written again")


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_an_answer_reads_is_refused(name: str) -> None:
    form, state = REFUSED[name]
    model = Stateful(form).eval()
    first, second = _calls(model)
    assert np.abs(first - second).max() > 1e-3
    module, *archives = _sources(name, model)
    for source in (module, *archives):
        with pytest.raises(AtlasError, match=rf"depends on a state .* {state} of ") as caught:
            trace(source, {"x": X.copy()}, name="m")
        assert f"self.{state}" in caught.value.remedy
        assert source is not module or "test_states.py:" in str(caught.value)


def test_names_of_outputs_are_those_of_what_is_returned() -> None:
    def form(m: Stateful, x: Any, y: Any) -> Any:
        m.calls.add_(1)
        return {"scores": y, "nothing": None, "both": (y * 2, y + m.calls)}

    module = trace(Stateful(form).eval(), {"x": X}, name="m", outputs="scores,both.0")
    found = interpret(module, {"x": X})
    assert list(found) == ["scores", "both.0"]
    np.testing.assert_allclose(found["both.0"], 2 * found["scores"], rtol=1e-6)
    with pytest.raises(AtlasError, match=r"the output both\.1 depends on a state"):
        trace(Stateful(form).eval(), {"x": X}, name="m", outputs="all")


def test_a_cast_to_an_integer_is_no_copy() -> None:
    """A buffer of integers cuts off what is written into it."""

    def form(m: Stateful, x: Any, y: Any) -> Any:
        return y + torch.zeros(2, 3, dtype=torch.int64).copy_(4 * y)

    with pytest.raises(AtlasError, match="cannot be compiled"):
        trace(Stateful(form).eval(), {"x": X}, name="m")
