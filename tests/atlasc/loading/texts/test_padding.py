"""Ids with padding of the user's own: behind a text it becomes the model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_files import tiny_bert
from transformers import LlamaConfig, LlamaForSequenceClassification

from atlasc.loading import IDS, MASK
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import model_of

OWN = 3
SHORT, FULL = [2, 5, 6, 9, 9, 9], [2, 5, 6, 7, 8, 1]
KEPT = [[1, 1, 1, 0, 0, 0], [1] * 6]
ROWS = [{IDS: ids, MASK: mask} for ids, mask in zip([SHORT, FULL], KEPT)]
ARRAYS = {IDS: np.array([SHORT, FULL]), MASK: np.array(KEPT)}


def told(inputs: Inputs) -> list[str]:
    notes: list[str] = []
    inputs.tell(lambda *parts: notes.append("\n".join(parts)))
    return notes


@pytest.fixture(scope="module")
def llama() -> LoadedModel:
    """A classifier, which looks for the last token that is not its padding."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16,
        pad_token_id=OWN, num_labels=2,
    )  # fmt: skip
    return model_of(LlamaForSequenceClassification(config).eval())


@pytest.mark.parametrize("data", [ROWS, ARRAYS])
def test_other_ids_behind_a_text_become_the_models_padding(data: Any, llama: LoadedModel) -> None:
    found = inputs_of(data, llama, 8)
    assert found.arrays[IDS].tolist() == [[2, 5, 6] + [OWN] * 5, [*FULL, OWN, OWN]]
    assert found.arrays[MASK].sum(axis=1).tolist() == [3, 6]
    (note,) = told(found)
    assert note.startswith(f"1 text has other ids than {OWN} as padding")
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in found.arrays.items()}
        alone = llama.module(input_ids=torch.tensor([SHORT[:3]])).logits[0]
        np.testing.assert_allclose(llama.module(**tensors).logits[0], alone, atol=1e-5)


def test_without_a_length_the_texts_stay_as_long_as_they_are(llama: LoadedModel) -> None:
    found = inputs_of([ROWS[0]], llama)
    assert found.arrays[IDS].tolist() == [[2, 5, 6, OWN, OWN, OWN]]


def test_the_models_own_padding_needs_no_note(llama: LoadedModel) -> None:
    own = inputs_of({**ARRAYS, IDS: np.where(ARRAYS[MASK] > 0, ARRAYS[IDS], OWN)}, llama, 8)
    assert told(own) == []


def test_padding_before_a_token_stays() -> None:
    """It has a position: some models count tokens by their ids."""
    ids, mask = [9, 9, 5, 9, 6, 9, 9, 9], [0, 0, 1, 0, 1, 0, 0, 0]
    found = inputs_of([{IDS: ids, MASK: mask}], model_of(tiny_bert()), 8)
    assert found.arrays[IDS].tolist() == [[9, 9, 5, 9, 6, 0, 0, 0]]
    assert found.arrays[MASK].tolist() == [mask]


def test_a_model_without_a_mask_sees_the_given_ids() -> None:
    class Unmasked(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

    found = inputs_of([ROWS[0]], model_of(Unmasked()), 6)
    assert found.arrays[IDS].tolist() == [SHORT]
    assert told(found) == []
