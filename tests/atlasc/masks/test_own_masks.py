"""Clients give a mask as the module takes it: under its name, in its form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import atlasc
from atlasc.bundle.manifest import MANIFEST
from atlasc.ir.errors import AtlasError
from atlasc.loading.client import client_model
from atlasc.loading.mask_argument import OwnMask

TOKENS = 5
KEEP = np.arange(TOKENS) < np.array([5, 3, 4, 2] * 6)[:, None]
X = np.random.default_rng(0).normal(size=(24, TOKENS, 4)).astype(np.float32)
FORMS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "src_key_padding_mask": ("true for padding", lambda keep: ~keep),
    "padding": ("1 for padding", lambda keep: 1 - keep.astype(np.int64)),
    "mask": ("1 for tokens", lambda keep: keep.astype(np.int64)),
    "mask_added": ("0 and -inf", lambda keep: np.where(keep, 0, -np.inf).astype(np.float32)),
}


class Series(nn.Module):
    """A Transformer over a series, whose forward names and shapes its mask itself."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 8, activation="gelu", batch_first=True)
        self.inner, self.head, self.name = nn.Linear(4, 8), nn.Linear(8, 3), name
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def answer(self, x: Any, padding: Any) -> Any:
        return self.head(self.encoder(self.inner(x), src_key_padding_mask=padding)[:, 0])


class Padded(Series):
    def forward(self, x, src_key_padding_mask):
        return self.answer(x, src_key_padding_mask)


class Ones(Series):
    def forward(self, x, padding):
        return self.answer(x, padding == 1)


class Kept(Series):
    def forward(self, x, mask):
        return self.answer(x, mask == 0)


class Added(Series):
    def forward(self, x, mask_added):
        return self.answer(x, mask_added)


MODELS = dict(zip(FORMS, (Padded, Ones, Kept, Added), strict=True))


def compiled(name: str, folder: Path) -> tuple[nn.Module, Any]:
    model = MODELS[name](name).eval()
    data = {"x": X, name: FORMS[name][1](KEEP)}
    program = atlasc.compile(model, data, recipe="is", target="sim")
    program.save(folder)
    return model, program


@pytest.mark.parametrize("name", [*FORMS][:1] + [
    pytest.param(name, marks=pytest.mark.deep("recipes")) for name in [*FORMS][1:]
])  # fmt: skip
def test_a_client_gives_the_mask_as_the_module_takes_it(name: str, tmp_path: Path) -> None:
    model, program = compiled(name, tmp_path / "bundle")
    own, x = FORMS[name][1](KEEP[:3]), X[:3]
    read = program.inputs({"x": x, name: own})
    np.testing.assert_array_equal(read.arrays["attention_mask"], KEEP[:3])
    with torch.no_grad():
        wanted = model(torch.tensor(x), torch.tensor(own)).numpy()
    (found,) = program.run({"x": x, name: own}).outputs.values()
    (other,) = program.run({"x": x, "attention_mask": KEEP[:3].astype(int)}).outputs.values()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    np.testing.assert_array_equal(found, other)
    with pytest.raises(AtlasError, match="two masks"):
        program.inputs({"x": x, name: own, "attention_mask": KEEP[:3]})
    with pytest.raises(AtlasError, match="must hold numbers"):
        program.inputs({"x": x, name: own.astype(str)})
    with pytest.raises(AtlasError, match="must hold 0 and .* alone"):
        program.inputs({"x": x, name: 17.0 * KEEP[:3] - 5})
    with pytest.raises(AtlasError, match="must have the shape"):
        program.inputs({"x": x, name: own[:, :4]})
    with pytest.raises(AtlasError, match="keeps no token"):
        program.inputs({"x": x, name: FORMS[name][1](KEEP[:3] & False)})
    manifest = json.loads((tmp_path / "bundle" / MANIFEST).read_text())
    assert "client/model/mask.json" in manifest["files"]


@pytest.mark.parametrize("argument", ["x", "attention_mask"])
def test_a_bundle_takes_no_private_input_for_a_mask(argument: str, tmp_path: Path) -> None:
    """What is private would leave in the clear."""
    from types import SimpleNamespace

    shapes = {"x": [1, TOKENS, 4], "attention_mask": [1, TOKENS]}
    inputs: Any = [SimpleNamespace(attributes={"name": n, "shape": s}) for n, s in shapes.items()]
    (tmp_path / "mask.json").write_text(OwnMask(argument=argument).model_dump_json())
    with pytest.raises(AtlasError, match="is no mask of the program"):
        client_model(inputs, tmp_path)
    (tmp_path / "mask.json").write_text(OwnMask(argument="mask").model_dump_json())
    with pytest.raises(AtlasError, match="is no mask of the program"):
        client_model(inputs[:1], tmp_path)


def test_a_mask_of_the_usual_name_is_one_for_each_token(tmp_path: Path) -> None:
    """Of a module that takes it the other way round, only data for `compile` have its form."""

    class Inverted(Series):
        def forward(self, x, attention_mask):
            return self.answer(x, attention_mask)

    model, told = Inverted("").eval(), ~KEEP
    program = atlasc.compile(model, {"x": X, "attention_mask": told}, recipe="is", target="sim")
    assert "clients of the program give attention_mask, which is 1" in " ".join(program.warnings)
    program.save(tmp_path / "bundle")
    assert not (tmp_path / "bundle/client/model/mask.json").exists()
    answer = program.run({"x": X[:3], "attention_mask": KEEP[:3].astype(int)})
    with torch.no_grad():
        wanted = model(torch.tensor(X[:3]), torch.tensor(told[:3])).numpy()
    np.testing.assert_allclose(answer.outputs["output"], wanted, atol=1e-3)
