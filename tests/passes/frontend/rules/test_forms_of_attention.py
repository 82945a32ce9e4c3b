"""Positions, grouped keys, masks and activations in the forms of HuggingFace's decoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import atlasc
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace
from benchmarks.families.further import FURTHER
from benchmarks.families.models import LENGTH, Family, decoder, text

LONG = {"short_factor": [1.0, 1.1], "long_factor": [2.0, 3.0]}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def rotary(kind: str, config: str = "Llama", **settings: Any) -> Family:
    given = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **settings}
    return decoder(config, rope_parameters=given)


def falcon(**settings: Any) -> Family:
    family = FURTHER["falcon"]
    return replace(family, settings={**family.settings, "multi_query": False, **settings})


FORMS: dict[str, Family] = {
    "linear": rotary("linear"),
    "dynamic": rotary("dynamic"),
    "yarn": rotary("yarn", original_max_position_embeddings=8),
    "llama3": rotary("llama3", original_max_position_embeddings=8, **LLAMA3),
    "longrope": rotary("longrope", "Phi3", original_max_position_embeddings=LENGTH, **LONG),
    "cohere": decoder("Cohere"),
    "cohere2": decoder("Cohere2", sliding_window=4),
    "glm": decoder("Glm", head_dim=4),
    "glm4": decoder("Glm4", head_dim=4),
    "helium": decoder("Helium", head_dim=4),
    "ernie 4.5": decoder("Ernie4_5", head_dim=4),
    "xglm": FURTHER["xglm"],
    "apertus": FURTHER["apertus"],
    "roformer": text("RoFormer", "Model", embedding_size=16),
    "gemma 3": replace(decoder("Gemma3Text", head_dim=4, sliding_window=4),
                       model="Gemma3ForCausalLM"),
    "hunyuan": decoder("HunYuanDenseV1", head_dim=4),
    "exaone 4": decoder("Exaone4", head_dim=4, sliding_window=4),
    "falcon 40b": falcon(new_decoder_architecture=True, num_kv_heads=2, num_attention_heads=4),
    "falcon rw": falcon(alibi=True, parallel_attn=False),
    "falcon 7b": FURTHER["falcon"],
}  # fmt: skip


def answered(model: Any, ids: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """HuggingFace's answer to a text alone, without padding."""
    with torch.no_grad():
        found: np.ndarray = model(input_ids=torch.from_numpy(ids[kept])[None])[0][0].numpy()
    return found


@pytest.mark.parametrize("name", FORMS)
def test_a_text_has_the_answer_that_it_has_alone(name: str) -> None:
    model, arrays = FORMS[name].build(), FORMS[name].inputs(4)
    (found,) = interpret(trace(model, arrays, name="m"), arrays).values()
    for ids, mask, row in zip(*arrays.values(), found, strict=True):
        kept = mask.astype(bool)
        np.testing.assert_allclose(row[kept], answered(model, ids, kept), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "gemma 3",
        *(
            pytest.param(name, marks=pytest.mark.deep("recipes"))
            for name in ("dynamic", "longrope", "hunyuan", "glm4", "cohere2", "falcon 40b",
                         "falcon rw", "xglm", "apertus")
        ),
    ],
)  # fmt: skip
def test_a_program_answers_as_huggingface(name: str) -> None:
    model, arrays = FORMS[name].build(), FORMS[name].inputs(4, 1)
    program = atlasc.compile(
        model, FORMS[name].inputs(), recipe="is", max_error=1e9, target="sim",
        sequence_length=LENGTH,
    )  # fmt: skip
    ran = program.run(arrays)
    assert not ran.unanswered and ran.max_error < 1e-9
    for ids, mask, row in zip(*arrays.values(), ran.outputs["logits"], strict=True):
        kept = mask.astype(bool)
        np.testing.assert_allclose(row[kept], answered(model, ids, kept), atol=1e-4)
