"""A small decoder with random weights, compiled with its step and its prefill for the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.loading.generation.settings import Settings
from tests.suite.made_once import made_once

TOKENS, VOCABULARY = 8, 40


def model(tied: bool = False) -> LlamaForCausalLM:
    """The decoder; its weights are large enough for its tokens to matter."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=16,
        bos_token_id=0, eos_token_id=VOCABULARY - 1, tie_word_embeddings=tied,
    )  # fmt: skip
    made = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight.mul_(8)
    return made


def tokenizer() -> PreTrainedTokenizerFast:
    """Words w0, w1, ..."""
    words = {f"w{number}": number for number in range(VOCABULARY)}
    found = Tokenizer(models.WordLevel(words, "w0"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=found, pad_token="w0")


@contextmanager
def changed(bundle: Bundle, settings: Settings) -> Iterator[None]:
    """A bundle whose step has other settings of generation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(bundle.step), "generation", settings)
        yield


def compiled(
    folder: Path, tied: bool = False, head: str | None = None, prefill: bool = True
) -> Bundle:
    """The decoder with its step and its prefill."""
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (24, TOKENS))
    data = [" ".join(f"w{one}" for one in text) for text in ids]
    options = CompileOptions(
        recipe="is", target="sim", generate=True, sequence_length=TOKENS, head=head, prefill=prefill
    )
    return compile_model(model(tied), data, folder, options, tokenizer=tokenizer()).bundle


def make_decoder(folder: Path) -> Bundle:
    """The decoder that several files of tests read."""
    return compiled(folder / "bundle")


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(made_once(tmp_path_factory, "decoder", make_decoder) / "bundle")
