"""Tiny text models of many families, each with a tokenizer of eleven words."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import model_of

BERT_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_WORDS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDS = ["a", "cat", "sat", "on", "the", "mat"]
SIZES = {
    "vocab_size": len(BERT_WORDS + WORDS),
    "max_position_embeddings": 24,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
DISTIL = {
    "vocab_size": len(BERT_WORDS + WORDS),
    "max_position_embeddings": 24,
    "dim": 16,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 24,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "albert": ("Albert", {**SIZES, "embedding_size": 8, "pad_token_id": 0}),
    "electra": ("Electra", {**SIZES, "embedding_size": 8}),
    "distilbert": ("DistilBert", DISTIL),
    "roberta": ("Roberta", {**SIZES, "type_vocab_size": 1}),
    "xlm-roberta": ("XLMRoberta", {**SIZES, "type_vocab_size": 1}),
    "camembert": ("Camembert", {**SIZES, "type_vocab_size": 1}),
}
WITH_SEGMENTS = ("bert", "albert", "electra")


def tokenizer_of(family: str, **options: Any) -> Any:
    """BERT's joins a pair as [CLS] a [SEP] b [SEP], RoBERTa's as <s> a </s> </s> b </s>."""
    if family in WITH_SEGMENTS:
        words = BERT_WORDS + WORDS
        return BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, **options)
    if family == "distilbert":
        return tokenizer_of("bert", model_input_names=["input_ids", "attention_mask"], **options)
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {word: i for i, word in enumerate(ROBERTA_WORDS + WORDS)}
    found = Tokenizer(models.WordLevel(words, "<unk>"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=found, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
        unk_token="<unk>", mask_token="<mask>", **options,
    )  # fmt: skip


def text_model(family: str, seed: int = 0, **tokens: Any) -> LoadedModel:
    """A classifier with weights large enough that every part of it matters, and its tokenizer."""
    name, sizes = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**sizes)
    module = getattr(transformers, f"{name}ForSequenceClassification")(config).eval()
    for parameter in module.parameters():
        noise = torch.randn_like(parameter)
        parameter.data = 0.3 * noise if parameter.ndim > 1 else parameter.data + 0.1 * noise
    return model_of(module, tokenizer_of(family, **tokens))


def logits(model: LoadedModel, arrays: Any) -> np.ndarray:
    """What HuggingFace's model gives for what its tokenizer returns."""
    tensors = {name: torch.as_tensor(np.asarray(array)) for name, array in arrays.items()}
    with torch.no_grad():
        found: np.ndarray = model.module(**tensors).logits.numpy()
    return found
