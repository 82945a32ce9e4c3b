"""Modules as users write them, from compile to decrypted answers on the simulator."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import atlasc
from atlasc.ir.bounds import Location
from atlasc.ir.errors import AtlasError

FEATURES, HEADS, TOKENS = 16, 2, 8
DATA = np.random.default_rng(0).normal(size=(24, TOKENS, FEATURES)).astype(np.float32)
Form = Callable[["Net", Any], Any]


class Lora(nn.Module):
    """A linear layer with low-rank matrices beside it, as peft makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.drop = nn.Linear(FEATURES, FEATURES), nn.Dropout(0.1)
        self.a, self.b = nn.Linear(FEATURES, 2, bias=False), nn.Linear(2, FEATURES, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(self.drop(x))) * 0.5


class Attention(nn.Module):
    """Attention whose queries, keys and values are adapted."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = Lora(), Lora(), Lora()

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in map_(self, x))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def map_(module: Attention, x: Any) -> list[Any]:
    return [module.q(x), module.k(x), module.v(x)]


class Net(nn.Module):
    """A form of some modules and a head."""

    def __init__(self, form: Form, *parts: nn.Module) -> None:
        super().__init__()
        self.form, self.parts = form, nn.ModuleList(parts)
        self.head = nn.Linear(FEATURES, 3)

    def forward(self, x):
        return self.form(self, x)


def layer(**options: Any) -> nn.TransformerEncoder:
    made = nn.TransformerEncoderLayer(FEATURES, HEADS, 32, **options)
    return nn.TransformerEncoder(made, 1)


def attention(**options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(FEATURES, HEADS, **options)


def scaled_heads(which: str, *shape: int) -> Callable[[], Net]:
    """Attention whose queries, keys or values are multiplied with a constant of a shape."""

    def form(m: Net, x: Any) -> Any:
        heads = {name: m.parts[n](x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                 for n, name in enumerate("qkv")}  # fmt: skip
        heads[which] = heads[which] * m.factor
        weights = (heads["q"] @ heads["k"].mT / 3).softmax(-1)
        return m.head((weights @ heads["v"]).transpose(1, 2).flatten(2).mean(1))

    def made() -> Net:
        net = Net(form, *(nn.Linear(FEATURES, FEATURES) for _ in range(3)))
        even = shape == (HEADS, 1, 1)
        net.factor = nn.Parameter(torch.full(shape, 1.5) if even else torch.rand(shape) + 0.5)
        return net

    return made


LATER = torch.triu(torch.full((TOKENS, TOKENS), -torch.inf), 1)
NETS: dict[str, Callable[[], Net]] = {
    "queries of each head, multiplied evenly": scaled_heads("q", HEADS, 1, 1),
    "keys of each token and feature, multiplied": scaled_heads("k", HEADS, TOKENS, 8),
    "values of each head and feature, multiplied": scaled_heads("v", 1, HEADS, 1, 8),
    "values of each token, multiplied": scaled_heads("v", TOKENS, 1),
    "mean at the end": lambda: Net(lambda m, x: m.head(x).mean(1)),
    "sum at the end": lambda: Net(lambda m, x: m.head(x).sum(1, keepdim=True)),
    "mean before": lambda: Net(lambda m, x: m.head(x.mean(dim=(1,)))),
    "mean before an activation": lambda: Net(
        lambda m, x: m.head(torch.tanh(m.parts[0](x).mean(1))), nn.Linear(FEATURES, FEATURES)
    ),
    "mean before a norm": lambda: Net(
        lambda m, x: m.head(m.parts[0](x.mean(1))), nn.LayerNorm(FEATURES)
    ),
    "no layer": lambda: Net(lambda m, x: x * 2),
    "only dropout in a list": lambda: Net(lambda m, x: m.parts[0](m.head(x)), nn.Dropout(0.5)),
    "softmax": lambda: Net(lambda m, x: m.head(x[:, 0]).softmax(-1)),
    "argmax": lambda: Net(lambda m, x: m.head(x[:, 0]).argmax(-1)),
    "cut and put together": lambda: Net(
        lambda m, x: m.parts[0](torch.cat([m.head(x)[..., 1:], m.head(x)[..., :1]], -1)),
        nn.Linear(3, 4),
    ),
    "lora": lambda: Net(lambda m, x: m.head(m.parts[0](x)[:, 0]), Attention()),
    "encoder": lambda: Net(lambda m, x: m.head(m.parts[0](x)[:, 0]), layer(batch_first=True)),
    "encoder with tokens first": lambda: Net(
        lambda m, x: m.head(m.parts[0](x.transpose(0, 1)).mean(0)), layer()
    ),
    "attention with weights": lambda: Net(
        lambda m, x: m.head(m.parts[0](x, x, x)[0][:, 0]), attention(batch_first=True)
    ),
    "attention of a parameter": lambda: Net(
        lambda m, x: m.head(m.parts[0](m.head.weight[:1].expand(len(x), 1, -1), x, x)[0][:, 0]),
        attention(batch_first=True),
    ),
    "the mean of some tokens": lambda: Net(lambda m, x: m.head(torch.tanh(x[:, 1:-2].mean(1)))),
    "the first token beside a mean": lambda: Net(
        lambda m, x: m.parts[0](torch.cat([m.head(x)[:, 0], m.head(x)[:, 1:].mean(1)], -1)),
        nn.Linear(6, 4),
    ),
    "causal attention": lambda: Net(
        lambda m, x: m.head(m.parts[0](x, x, x, attn_mask=LATER)[0][:, -1]),
        attention(batch_first=True),
    ),
}


def wanted(model: nn.Module, count: int) -> Any:
    with torch.no_grad():
        return model.eval()(torch.from_numpy(DATA[:count]))


@pytest.mark.parametrize("name", NETS)
def test_answers_equal_torch(name: str) -> None:
    torch.manual_seed(1)
    model = NETS[name]().eval()
    program = atlasc.compile(model, data={"x": DATA}, recipe="is", target="sim")
    answer = program.run({"x": DATA[:3]})
    assert not answer.refused
    (found,), expected = answer.outputs.values(), wanted(model, 3).numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-3
    assert answer.max_error < 1e-6


class Pooled(nn.Module):
    """The mean of the tokens that a mask keeps, and, where it is ``deep``, a norm and an activation
    behind it.
    """

    def __init__(self, deep: bool) -> None:
        super().__init__()
        self.deep = deep
        self.layer, self.norm = nn.Linear(FEATURES, FEATURES), nn.LayerNorm(FEATURES)
        self.head = nn.Linear(FEATURES, 3)

    def forward(self, x, attention_mask):
        kept = attention_mask.unsqueeze(-1).expand(x.size()).float()
        mean = (self.layer(x) * kept).sum(1) / kept.sum(1).clamp(min=1e-9)
        return self.head(F.gelu(self.norm(mean)) if self.deep else mean)


KEPT = np.random.default_rng(2).integers(1, TOKENS + 1, len(DATA))
MASK = (np.arange(TOKENS) < KEPT[:, None]).astype(np.int64)


@pytest.mark.parametrize(("target", "batch"), [("sim", 1), ("sim", 2), ("cpu", 2)])
def test_a_mean_of_the_tokens_that_a_mask_keeps(target: str, batch: int) -> None:
    torch.manual_seed(1)
    model = Pooled(deep=target == "sim").eval()
    data = {"x": DATA, "attention_mask": MASK}
    program = atlasc.compile(model, data=data, recipe="is", target=target, batch=batch)
    few = {name: array[:batch] for name, array in data.items()}
    answer = program.run(few)
    assert not answer.refused
    with torch.no_grad():
        expected = model(*map(torch.from_numpy, few.values())).numpy()
    (found,) = answer.outputs.values()
    assert np.abs(found - expected).max() < 0.05 * expected.std()
    assert answer.max_error < 1e-4


def test_a_mask_beside_an_input_that_is_no_text() -> None:
    """All tokens are kept without one; one that cannot be a mask is refused."""
    model = Pooled(deep=False).eval()
    data = {"x": DATA, "attention_mask": MASK}
    program = atlasc.compile(model, data=data, recipe="is", target="sim")
    (found,) = program.run({"x": DATA[:1]}).outputs.values()
    ones = torch.ones(1, TOKENS, dtype=torch.int64)
    with torch.no_grad():
        expected = model(torch.from_numpy(DATA[:1]), ones).numpy()
    assert np.abs(found - expected).max() < 1e-4
    for mask in (2 * MASK, MASK[:, 1:], MASK[:, None]):
        with pytest.raises(atlasc.AtlasError, match=r"must have the shape \(24, 8\)"):
            program.run({"x": DATA, "attention_mask": mask})
    with pytest.raises(atlasc.AtlasError, match="row 0 of attention_mask keeps no token"):
        program.run({"x": DATA[:2], "attention_mask": 0 * MASK[:2]})


def test_a_mean_on_ciphertexts_is_answered_at_batch_1(tmp_path: Path) -> None:
    model = NETS["mean at the end"]().eval()
    program = atlasc.compile(model, data={"x": DATA}, recipe="is", target="cpu")
    answer = program.run({"x": DATA[:1]})
    assert not answer.refused
    assert np.abs(answer.outputs["output"] - wanted(model, 1).numpy()).max() < 1e-3


def test_the_client_applies_the_last_function(tmp_path: Path) -> None:
    model = NETS["softmax"]().eval()
    program = atlasc.compile(model, data={"x": DATA}, recipe="is", target="sim")
    assert "softmax, which the client applies" in " ".join(program.warnings)
    program.save(tmp_path / "program")
    atlasc.keygen(tmp_path / "program", tmp_path / "keys")
    client = atlasc.Client(tmp_path / "program", tmp_path / "keys")
    server = atlasc.Server(tmp_path / "program", tmp_path / "keys")
    answer = client.decrypt(server.execute(client.encrypt({"x": DATA[:1]})))
    shares = answer.shown()["output"]
    np.testing.assert_allclose(shares, wanted(model, 1).numpy(), atol=1e-4)
    logits = model.head(torch.from_numpy(DATA[:1, 0])).detach().numpy()
    np.testing.assert_allclose(answer.outputs["output"], logits, atol=1e-4)


def test_outputs_are_chosen_and_the_others_named() -> None:
    def model() -> Net:
        return Net(lambda m, x: {"a": m.head(x), "b": (m.head(x[:, 0]), x[:, 1] * 2)}).eval()

    one = atlasc.compile(model(), data={"x": DATA}, recipe="is", target="sim")
    assert "left out: b.0, b.1" in " ".join(one.warnings)
    assert list(one.run({"x": DATA[:2]}).outputs) == ["a"]
    several = atlasc.compile(model(), data={"x": DATA}, recipe="is", target="sim", outputs="b.1,a")
    assert not several.warnings
    answer = several.run({"x": DATA[:2]})
    assert sorted(answer.outputs) == ["a", "b.1"]
    np.testing.assert_allclose(answer.outputs["b.1"], 2 * DATA[:2, 1], atol=1e-4)
    with pytest.raises(atlasc.AtlasError, match=r"no output 'c'.*\n.*a, b\.0, b\.1"):
        atlasc.compile(model(), data={"x": DATA}, recipe="is", target="sim", outputs="c")


def test_attention_over_the_batch_is_refused() -> None:
    model = Net(lambda m, x: m.head(m.parts[0](x, x, x)[0]), attention())
    with pytest.raises(atlasc.AtlasError, match="batch_first=True"):
        atlasc.compile(model, data={"x": DATA}, recipe="is", target="sim")


def test_what_has_no_packed_form_names_the_line() -> None:
    """The packing knows the op's location alone; the line goes along with it."""

    class FirstAdded(Net):
        def forward(self, x):
            h = self.parts[0](x)
            h = h + h[:, :1]
            return self.head(torch.tanh(h).mean(1))

    model = FirstAdded(lambda m, x: x, nn.Linear(FEATURES, FEATURES)).eval()
    line = FirstAdded.forward.__code__.co_firstlineno + 2
    with pytest.raises(AtlasError, match="a sum cannot be compiled yet") as caught:
        atlasc.compile(model, data={"x": DATA}, recipe="is", target="sim")
    assert f"test_modules.py:{line}" in caught.value.where


def test_a_line_is_no_part_of_a_location() -> None:
    location = Location("encoder.0", "mine.py:7")
    for one in (location, copy.deepcopy(location), pickle.loads(pickle.dumps(location))):
        assert (one, one.line, f"{one}") == ("encoder.0", "mine.py:7", "encoder.0")
    assert AtlasError("no", where=location).where == "encoder.0 (mine.py:7)"
    assert AtlasError("no", where=[Location("", "mine.py:7"), "a"]).where.split() == [
        "mine.py:7", "a",
    ]  # fmt: skip
