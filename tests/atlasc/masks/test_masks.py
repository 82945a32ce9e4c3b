"""A mask of padding is what it does: whatever computes it, and whatever its name is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.client.in_clear import in_clear
from atlasc.client.program import ClientProgram
from atlasc.compilation.oracle.asking import ask
from atlasc.compilation.prepare import trace_model
from atlasc.compilation.source import as_traced, load_source
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from tests.atlasc.masks import masked_modules as masks
from tests.atlasc.remote.conftest import text_bundle

__all__ = ["text_bundle"]
SEEDS = [
    *range(12),
    *(pytest.param(seed, marks=pytest.mark.deep("recipes")) for seed in range(12, 60)),
]


def read(model: nn.Module, data: Any, told: dict[str, str] | None = None) -> tuple[Any, Module]:
    """The source and the traced module, after the module itself was asked."""
    told = {} if told is None else told
    source = load_source(model, data, note=told.setdefault)
    traced = trace_model(source.model, 1, source.length, source.inputs)
    source = as_traced(source, traced, told.setdefault)
    asked = ask(source.model, traced, source.inputs, told.setdefault)
    assert asked is not None, told
    return source, traced


def public(traced: Module) -> list[str]:
    return [op.attributes["name"] for op in traced.inputs if op.attributes["side"] == "public"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mask_that_is_computed_from_ids(seed: int) -> None:
    model, how = masks.from_ids(seed)
    ids = masks.texts(seed, model.pad)
    rows = [[i for i in row if i != model.pad] for row in ids.tolist()]
    source, traced = read(model, rows if seed % 2 else {"input_ids": ids})
    assert public(traced) == ["attention_mask"], how
    arrays = source.inputs.arrays
    assert (arrays["attention_mask"] == (arrays["input_ids"] != model.pad)).all()
    (found,) = interpret(traced, {name: y[:1] for name, y in arrays.items()}).values()
    with torch.no_grad():
        wanted = model(torch.from_numpy(arrays["input_ids"][:1])).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=f"{model.form}, {how}")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_mask_that_is_an_argument_of_any_name(seed: int) -> None:
    model, how, argument, given_as = masks.from_argument(seed)
    ids = masks.texts(seed, model.pad)
    mask = given_as((ids != model.pad).astype(np.int64))
    told: dict[str, str] = {}
    source, traced = read(model, {"input_ids": ids, argument: mask}, told)
    assert public(traced) == ["attention_mask"], how
    assert any(f"the argument {argument} is the mask of padding" in one for one in told)
    arrays = source.inputs.arrays
    (found,) = interpret(traced, {name: y[:1] for name, y in arrays.items()}).values()
    row = {name: torch.from_numpy(y[:1]) for name, y in arrays.items()}
    own = torch.from_numpy(given_as(arrays["attention_mask"][:1]))
    with torch.no_grad():
        wanted = model(row["input_ids"], own.float() if own.is_floating_point() else own).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=f"{model.form}, {how}")


@pytest.mark.parametrize("how", ["bool, padding", "integers, tokens", "-inf"])
def test_texts_need_no_mask_under_the_models_own_name(how: str) -> None:
    """Ids of several lengths have a mask by themselves, and the module is given its own form."""
    seed = next(n for n in range(10**4) if masks.from_argument(n)[1] == how)
    model, _, argument, _ = masks.from_argument(seed)
    ids = masks.texts(seed, model.pad)
    _, traced = read(model, [[i for i in row if i != model.pad] for row in ids.tolist()])
    assert public(traced) == ["attention_mask"] and argument not in public(traced)


@pytest.mark.parametrize("inverted", [False, True])
def test_a_mask_beside_vectors(inverted: bool) -> None:
    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
            self.inner, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
            self.encoder = nn.TransformerEncoder(layer, 1)

        def forward(self, x, attention_mask):
            padding = attention_mask if inverted else ~attention_mask
            return self.head(self.encoder(self.inner(x), src_key_padding_mask=padding)[:, 0])

    x = np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32)
    keep = np.arange(6) < np.array([6, 5, 4, 3, 2, 6, 3, 2])[:, None]
    source, traced = read(Series().eval(), {"x": x, "attention_mask": keep ^ inverted})
    assert public(traced) == ["attention_mask"]
    assert source.inputs.arrays["attention_mask"].sum() in range(8, 30)


def test_other_arguments_and_comparisons_stay_private() -> None:
    class Features(nn.Module):
        """Adds where a word stands, and multiplies by zeros and ones that hide nothing."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.head = nn.Embedding(40, 8, padding_idx=0), nn.Linear(8, 3)

        def forward(self, input_ids, mask):
            h = torch.tanh(self.head(self.table(input_ids)))
            return (h * (input_ids == 17)[..., None] + mask[..., None]).mean(1)

    ids = masks.texts(0, 0)
    told: dict[str, str] = {}
    data = {"input_ids": ids, "mask": ids % 2}
    source = load_source(Features().eval(), data, note=told.setdefault)
    assert "mask" in source.inputs.arrays and not told
    with pytest.raises(AtlasError):
        trace_model(source.model, 1, source.length, source.inputs)


def test_a_mask_that_adds_what_drops_keys_is_no_position() -> None:
    """A mask was taken for slopes of 0, where a view lay between it and the softmax."""

    class View(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.q, self.k = nn.Embedding(40, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, input_ids, attention_mask):
            h = self.table(input_ids)
            scores = self.q(h) @ self.k(h).transpose(1, 2)
            scores = scores + ((1.0 - attention_mask) * -1e9)[:, None]
            return torch.softmax(scores[:, None], -1)[:, 0] @ h

    ids = masks.texts(0, 0)
    with pytest.raises(AtlasError, match="cannot be compiled") as caught:
        read(View().eval(), {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)})
    assert "only supported just before a softmax" in str(caught.value)


def test_a_program_masks_padding_and_refuses_its_id_among_tokens() -> None:
    made = ((n, masks.Masked(n)) for n in range(100))
    seed = next(n for n, one in made if (one.pad, one.form) == (0, "mean"))
    model, _ = masks.from_ids(seed)
    ids = masks.texts(0, 0, 24)
    ids[3, 1] = 0
    options: dict[str, Any] = {"recipe": "is", "target": "sim", "progress": False}
    program = atlasc.compile(model, {"input_ids": ids}, **options)
    assert any("the id 0 among their tokens" in one for one in program.warnings)
    short = program.run([[5, 6, 7]])
    with torch.no_grad():
        wanted = model(torch.tensor([[5, 6, 7]])).numpy()
    np.testing.assert_allclose(short.shown()["output"], wanted, atol=1e-3)
    with pytest.raises(AtlasError, match="which the model takes for padding, among its tokens"):
        program.run([[5, 0, 7]])
    with pytest.raises(AtlasError, match="attention_mask must be 0 there"):
        program.run({"input_ids": ids[3:4]})
    whole = program.run({"input_ids": ids[3:4], "attention_mask": (ids[3:4] != 0).astype(int)})
    with torch.no_grad():
        wanted = model(torch.from_numpy(ids[3:4])).numpy()
    np.testing.assert_allclose(whole.shown()["output"], wanted, atol=1e-3)


def test_a_hostile_bundle_learns_no_word(text_bundle: Path) -> None:
    """It says that a word is padding: what leaves is the same for all texts of a length, and a
    text with the word is not sent.
    """
    bundle = load_bundle(text_bundle)
    client = bundle.client
    text = print_module(client.embed)
    named = text.replace('dtype = "i64", name = "input_ids"', 'dtype = "i64", name = "input_ids"')
    at = named.index('name = "input_ids"')
    hostile = f"{named[:at]}padding = 17, {named[at:]}"
    other = ClientProgram(parse(hostile, client.embed.symbols), client.interface)
    assert other.padding == {"input_ids": 17}
    assert in_clear(other.interface) == in_clear(client.interface)
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    sent = set()
    for word in range(2, 30):
        ids = np.array([[5, word, 6, 7, 17, 17]])
        arrays = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask}
        if word == 17:
            with pytest.raises(AtlasError, match="cannot be encrypted"):
                other.query(arrays)
            assert other.examine(arrays)[0].fault
            continue
        sent.add(other.query(arrays).public["attention_mask"].tobytes())
    assert len(sent) == 1


def test_the_loader_of_a_client_takes_no_mask_from_ids(text_bundle: Path) -> None:
    from atlasc.loading import Padding
    from atlasc.loading.data import inputs_of

    model = load_bundle(text_bundle).model
    model.padding = Padding("input_ids", 17)
    inputs = inputs_of({"input_ids": np.array([[5, 17, 6], [5, 6, 17]])}, model, 6)
    assert inputs.arrays["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0]] * 2
