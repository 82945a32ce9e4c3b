"""Parts of models: classes below the top level of transformers, encoders, shapes of inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    ASTConfig,
    ASTForAudioClassification,
    BartConfig,
    BartForConditionalGeneration,
    BartForSequenceClassification,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    T5Model,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.models.bart.modeling_bart import BartEncoder

from atlasc.compilation.prepare import input_specs, trace_model
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.loading.data import inputs_of
from atlasc.loading.models import load_model, model_of

BART = {
    "vocab_size": 40, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
}  # fmt: skip
WHISPER = {
    **BART, "num_mel_bins": 6, "max_source_positions": 5, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None,
    "begin_suppress_tokens": None,
}  # fmt: skip
T5 = {"vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2}
TEXTS = {"input_ids": np.arange(8).reshape(2, 4) + 3, "attention_mask": np.ones((2, 4), int)}


def saved(model: PreTrainedModel, folder: Path, **changes: object) -> Path:
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    return folder


def bart() -> BartForConditionalGeneration:
    torch.manual_seed(0)
    return BartForConditionalGeneration(BartConfig(**BART, max_position_embeddings=16)).eval()


def test_a_class_below_the_top_level(tmp_path: Path) -> None:
    model = bart().get_encoder()
    loaded = load_model(saved(model, tmp_path / "m"))
    assert type(loaded.module) is BartEncoder and not loaded.notes
    module = trace_model(loaded, 2, 4)
    with torch.no_grad():
        wanted = model(**{name: torch.from_numpy(a) for name, a in TEXTS.items()})
    (found,) = interpret(module, TEXTS).values()
    np.testing.assert_allclose(found, wanted.last_hidden_state, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["BartAttention", "nn", "os.system", "BartConfig", "T5EncoderModel", "PreTrainedModel"]
)
def test_other_names_are_no_architectures(tmp_path: Path, name: str) -> None:
    folder = saved(bart().get_encoder(), tmp_path / "m", architectures=[name])
    with pytest.raises(AtlasError, match=f"unknown architecture {name}"):
        load_model(folder)


def whisper() -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration(WhisperConfig(**WHISPER))


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (bart, TEXTS),
        (lambda: T5ForConditionalGeneration(T5Config(**T5)), TEXTS),
        (lambda: T5Model(T5Config(**T5)), TEXTS),
        (whisper, {"input_features": np.linspace(-1, 1, 120).reshape(2, 6, 10).astype("f")}),
    ],
)
def test_the_encoder_of_an_encoder_decoder(
    tmp_path: Path, model: Any, inputs: dict[str, np.ndarray]
) -> None:
    torch.manual_seed(0)
    whole = model().eval()
    loaded = load_model(saved(whole, tmp_path / "m"))
    ((headline, details),) = loaded.notes
    assert type(whole).__name__ in headline and "decoder" in details
    given = inputs_of(inputs, loaded)
    module = trace_model(loaded, 2, 4 if "input_ids" in inputs else None, given)
    with torch.no_grad():
        wanted = whole.get_encoder()(**{n: torch.from_numpy(a) for n, a in given.arrays.items()})
    (found,) = interpret(module, given.arrays).values()
    np.testing.assert_allclose(found, wanted.last_hidden_state, atol=1e-5)


def test_the_encoder_of_a_model_in_memory() -> None:
    loaded = model_of(bart())
    assert type(loaded.module) is BartEncoder
    assert "BartForConditionalGeneration" in loaded.notes[0][0]


def test_a_classifier_keeps_its_decoder(tmp_path: Path) -> None:
    model = BartForSequenceClassification(BartConfig(**BART))
    loaded = load_model(saved(model, tmp_path / "m"))
    assert type(loaded.module) is BartForSequenceClassification and not loaded.notes


def test_shapes_of_spectrograms_from_a_config(tmp_path: Path) -> None:
    config = ASTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        patch_size=4, num_mel_bins=8, max_length=16,
    )  # fmt: skip
    folder = saved(ASTForAudioClassification(config), tmp_path / "ast")
    assert input_specs(load_model(folder, weights=False))["input_values"].shape == (1, 16, 8)
    folder = saved(whisper(), tmp_path / "whisper")
    with pytest.raises(AtlasError, match="the shape of input_features is not known") as caught:
        input_specs(load_model(folder, weights=False))
    assert "give data with the array input_features" in caught.value.remedy
    extractor = folder / "preprocessor_config.json"
    extractor.write_text('{"feature_size": 6, "nb_max_frames": 10}')
    specs = input_specs(load_model(folder, weights=False))
    assert specs["input_features"].shape == (1, 6, 10)
    assert specs["input_features"].dtype == "f32"
    extractor.write_text('{"feature_size": "6", "nb_max_frames": -1}')
    with pytest.raises(AtlasError, match="is not known"):
        input_specs(load_model(folder, weights=False))
