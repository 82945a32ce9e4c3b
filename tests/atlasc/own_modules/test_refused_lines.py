"""What a pass after tracing refuses names the line of the user's file, why, and what to write."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

import atlasc
from atlasc.compilation.prepare import trace_model
from atlasc.ir.bounds import line_of
from atlasc.ir.errors import AtlasError
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import model_of

TOKENS, FEATURES = 6, 8
X = np.random.default_rng(0).normal(size=(24, TOKENS, FEATURES)).astype(np.float32)
MODULE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
        self.six, self.three = nn.Linear(8, 6), lambda h: h.unflatten(-1, (3, 2)).transpose(1, 2)
        self.norm, self.gate, self.single = nn.LayerNorm(4), nn.Linear(4, 1), nn.Linear(8, 4)
        self.register_buffer("bias", torch.randn(2, 6, 6))
        self.register_buffer("tokens", torch.randn(6, 1))

    def heads(self, h):
        return h.unflatten(-1, (2, 4)).transpose(1, 2)

    def attend(self, q, k, v):
        return self.merge((q @ k.mT).softmax(-1) @ v)

    def merge(self, h):
        return h.transpose(1, 2).flatten(2)

    def forward(self, x):
        h = self.a(x)
        q, k, v = map(self.heads, (h, self.b(x), self.c(x)))
        {code}
        return h
"""
LINE = MODULE[: MODULE.index("{code}")].count("\n") + 1
REFUSED = {
    "h = x - x[:, :1]": "one token is not copied to all others",
    "h = h * torch.sigmoid(h.mean(1, keepdim=True))": "one token is not copied to all others",
    "h = h[:, :1] * self.tokens": "only a last axis of one element is copied",
    "h = x.reshape(-1, 8, 6)": "only the splitting and merging of attention heads is free",
    "h = h.reshape(-1, 8, 6)": "only the splitting and merging of attention heads is free",
    "h = h.mean(0, keepdim=True)": "the first axis counts inputs",
    "h = h.softmax(-1) * x": "only the softmax over the keys of attention is compiled",
    "h = self.merge((q @ k.mT).tanh() @ v)": "is read by a softmax alone",
    "h = q @ k.mT": "no packed form on %",
    "h = ((q @ k.mT).softmax(-1) @ v).mean(1)": "only packed over the tokens",
    "h = self.norm(q).transpose(1, 2).flatten(2)": "poly.center has no packed form",
    "h = ((q @ k.mT + self.gate(q) * self.bias).softmax(-1) @ v)": "one element is copied",
    "h = ((q @ k.mT + q @ v.mT).softmax(-1) @ v)": "this bias is computed from private values",
    "h = ((q @ k.mT).softmax(-1) @ v)[:, 0]": "only a token (axis 1) can be selected",
    "h = self.attend(q, k[:, :1], v)": "only a token (axis 1) can be selected",
    "h = self.attend(q, self.single(x)[:, None], v)": "merging of attention heads",
    "q = self.three(self.six(x)); h = self.attend(self.three(self.attend(q, q, q)), q, q)": (
        "an operand of poly.matmul comes from"
    ),
    "q = self.six(x); k = self.three(q); h = self.attend(self.three(q[:, :1] * q[:, 1:2]), k, k)": (
        "it comes from ckks.mul"
    ),
}  # fmt: skip
"""Code of a forward -> a part of the reason."""


def users_module(code: str, folder: Path, text: str = MODULE) -> torch.nn.Module:
    file = folder / "users_module.py"
    file.write_text(text.format(code=code))
    spec = importlib.util.spec_from_file_location("users_module", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: torch.nn.Module = module.Model().eval()
    return model


@pytest.mark.parametrize(("code", "why"), REFUSED.items(), ids=list(REFUSED))
def test_a_later_refusal_names_the_line(code: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(AtlasError) as caught:
        atlasc.compile(users_module(code, tmp_path), {"x": X}, recipe="is", target="sim")
    assert f"users_module.py:{LINE}" in caught.value.where
    assert why in str(caught.value) and caught.value.why and caught.value.remedy


@pytest.mark.parametrize("code", ["h = self.attend(q, k, v)", "h = x[:, 2] + h.mean(1)"])
def test_each_traced_op_has_a_line(code: str, tmp_path: Path) -> None:
    """Of what passes make of an op, each has the line of that op."""
    loaded = model_of(users_module(code, tmp_path))
    traced = trace_model(loaded, inputs=Inputs({"x": X}, tuple(map(str, range(len(X))))))
    assert all("users_module.py:" in line_of(op.location) for op in traced.ops)


@pytest.mark.parametrize("data", [X[:, 0, 0], X[:, :, None]], ids=["one", "four"])
def test_an_input_of_other_axes_is_refused(data: np.ndarray, tmp_path: Path) -> None:
    """Before calibration, which knows rows of features."""
    text = MODULE.replace("q, k, v = map(self.heads, (h, self.b(x), self.c(x)))", "{code}")
    model = users_module("return x.tanh()", tmp_path, text.replace("h = self.a(x)", "h = x"))
    with pytest.raises(AtlasError, match="neither .batch, tokens, features. nor") as caught:
        atlasc.compile(model, {"x": data}, recipe="is", target="sim")
    assert f"users_module.py:{LINE - 1}" in caught.value.where and caught.value.remedy


def test_the_users_folder_may_be_named_as_torch_is(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    with pytest.raises(AtlasError) as caught:
        atlasc.compile(users_module("h = x.cumsum(1)", folder), {"x": X}, recipe="is", target="sim")
    assert f"torch/users_module.py:{LINE}" in caught.value.where


@pytest.mark.parametrize(
    "code",
    [
        "q = F.linear(self.attend(q, q, q), torch.eye(6))",
        "q = F.linear(r[:, :1] * r[:, 1:2], torch.eye(6))",
    ],
)
def test_a_query_may_come_from_the_identity(code: str, tmp_path: Path) -> None:
    """As the refusal of a query that comes from no linear layer says."""
    made = "r = self.six(x); q = self.three(r); F = nn.functional"
    attended = "k = self.three(r); h = self.attend(self.three(q), k, k)"
    _equal(users_module(f"{made}; {code}; {attended}", tmp_path))


def test_the_only_token_is_chosen_of_a_token(tmp_path: Path) -> None:
    _equal(users_module("h = (h[:, :1] * self.b(x)[:, 1:2]) @ torch.eye(8)", tmp_path))


def _equal(model: torch.nn.Module) -> None:
    answer = atlasc.compile(model, {"x": X}, recipe="is", target="sim").run({"x": X[:4]})
    (found,) = answer.outputs.values()
    with torch.no_grad():
        wanted = model(torch.tensor(X[:4])).numpy()
    assert np.abs(found - wanted).max() < 1e-4 * wanted.std()
