"""Tiny models of HuggingFace families with random weights, and inputs for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Kind = Literal["ids", "pixels", "waves", "mel", "bands"]
VOCABULARY, LENGTH, INPUTS = 50, 8, 40
"""Ids, tokens of a text, and the number of inputs that a program is calibrated on."""
FEATURES, HEADS, HIDDEN, LAYERS = 16, 2, 24, 2
SIZES: dict[str, Any] = {
    "hidden_size": FEATURES,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
}
TEXT = {**SIZES, "vocab_size": VOCABULARY, "max_position_embeddings": 16}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**TEXT, **SPECIAL, "num_attention_heads": 4, "num_key_value_heads": 2}
IMAGE = {**SIZES, "image_size": 8, "patch_size": 4, "num_channels": 3}
SPREAD = 0.3
"""Standard deviation of matrices: large enough that every part of a model matters."""


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        config, model: names of its classes in transformers; a name in a module of a model is
            written ``module:class``.
        settings: of the config.
        kind: what the model reads: token ids, pixels, a waveform, or a spectrogram with the
            frequencies first (``mel``) or last (``bands``).
        shape: of one input, without its batch.
        spread: standard deviation of matrices; smaller where scores are not divided by √width.
    """

    config: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "ids"
    shape: tuple[int, ...] = (LENGTH,)
    spread: float = SPREAD

    @property
    def input_name(self) -> str:
        """Name of the private input."""
        names = {"ids": "input_ids", "pixels": "pixel_values", "mel": "input_features"}
        return names.get(self.kind, "input_values")

    def build(self) -> PreTrainedModel:
        """The model, in evaluation mode; the same at every call."""
        import torch

        torch.manual_seed(0)
        config = find_class(self.config)(**self.settings)
        model: PreTrainedModel = find_class(self.model)(config).eval()
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            matrix = parameter.ndim > 1
            parameter.data = self.spread * noise if matrix else parameter.data + 0.1 * noise
        return model

    def inputs(self, count: int = INPUTS, seed: int = 0) -> dict[str, np.ndarray]:
        """Random inputs; texts have different lengths, and a mask."""
        random = np.random.default_rng(seed)
        if self.kind != "ids":
            values = random.normal(size=(count, *self.shape)).astype(np.float32)
            return {self.input_name: values}
        ids = random.integers(3, VOCABULARY, size=(count, *self.shape))
        # The first texts are the longest ones, so that every sample has a text of full length.
        kept = random.integers(LENGTH // 2, LENGTH + 1, size=(count, 1))
        kept[0] = LENGTH
        mask = (np.arange(LENGTH) < kept).astype(np.int64)
        config = find_class(self.config)(**self.settings)
        padding = getattr(config, "pad_token_id", None)  # a client pads with no other
        ids = np.where(mask, ids, 1 if padding is None else padding)
        return {"input_ids": ids, "attention_mask": mask}


def find_class(name: str) -> Any:
    """A class of transformers by the name that `Family` writes."""
    import transformers

    module, _, inner = name.rpartition(":")
    if not module:
        return getattr(transformers, inner)
    return getattr(import_module(f"transformers.models.{module}"), inner)


def text(config: str, model: str, **settings: Any) -> Family:
    """A model of texts."""
    return Family(f"{config}Config", f"{config}{model}", {**TEXT, **settings})


def decoder(config: str, **settings: Any) -> Family:
    """A model of texts that writes the next token, with grouped heads."""
    return Family(f"{config}Config", f"{config}ForCausalLM", {**GROUPED, **settings})


def image(config: str, model: str = "ForImageClassification", **settings: Any) -> Family:
    """A model of images."""
    given = {**IMAGE, **settings}
    shape = (given["num_channels"], given["image_size"], given["image_size"])
    return Family(f"{config}Config", f"{config}{model}", given, "pixels", shape)


_WHISPER = {
    "num_mel_bins": 8, "d_model": FEATURES, "encoder_layers": LAYERS, "decoder_layers": 1,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN, "max_source_positions": 8,
    "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
_WAV2VEC2 = {
    **SIZES, "vocab_size": VOCABULARY, "conv_dim": (8, 8), "conv_kernel": (10, 3),
    "conv_stride": (5, 2), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
_BART = {
    "vocab_size": VOCABULARY, "d_model": FEATURES, "encoder_layers": LAYERS, "decoder_layers": 1,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN, "max_position_embeddings": 16,
}  # fmt: skip

T5 = {
    "vocab_size": VOCABULARY, "d_model": FEATURES, "d_kv": 8, "d_ff": HIDDEN,
    "num_layers": LAYERS, "num_heads": HEADS, "pad_token_id": 0,
}  # fmt: skip

FAMILIES: dict[str, Family] = {
    "bert": text("Bert", "ForSequenceClassification"),
    "roberta": text("Roberta", "ForSequenceClassification"),
    "distilbert": Family(
        "DistilBertConfig", "DistilBertForSequenceClassification",
        {"vocab_size": VOCABULARY, "dim": FEATURES, "n_layers": LAYERS, "n_heads": HEADS,
         "hidden_dim": HIDDEN, "max_position_embeddings": 16},
    ),
    "electra": text("Electra", "ForSequenceClassification", embedding_size=12),
    "albert": text("Albert", "ForSequenceClassification", embedding_size=12),
    "xlm-roberta": text("XLMRoberta", "ForSequenceClassification"),
    "camembert": text("Camembert", "ForSequenceClassification"),
    "mpnet": text("MPNet", "Model"),
    "deberta-v2": text(
        "DebertaV2", "ForSequenceClassification", relative_attention=True,
        pos_att_type=["p2c", "c2p"], position_buckets=4, share_att_key=True,
    ),
    "modernbert": text("ModernBert", "ForSequenceClassification", **SPECIAL, cls_token_id=1,
                        sep_token_id=2, local_attention=4, global_attn_every_n_layers=2),
    "vit": image("ViT"),
    "deit": image("DeiT"),
    "beit": image("Beit"),
    "dinov2": image("Dinov2"),
    "siglip": image("SiglipVision", "Model"),
    "clip (vision)": image("CLIPVision", "Model"),
    "clip (text)": text("CLIPText", "Model", **SPECIAL),
    "swin": Family(
        "SwinConfig", "SwinForImageClassification",
        {"image_size": 16, "patch_size": 2, "num_channels": 3, "embed_dim": 8, "depths": [2, 2],
         "num_heads": [2, 2], "window_size": 4},
        "pixels", (3, 16, 16),
    ),
    "ast": Family(
        "ASTConfig", "ASTForAudioClassification",
        {**SIZES, "patch_size": 4, "num_mel_bins": 8, "max_length": 16, "time_stride": 4,
         "frequency_stride": 4},
        "bands", (16, 8),
    ),
    "wav2vec2": Family("Wav2Vec2Config", "Wav2Vec2Model", _WAV2VEC2, "waves", (160,)),
    "whisper": Family(
        "WhisperConfig", "whisper.modeling_whisper:WhisperEncoder", _WHISPER, "mel", (8, 16)
    ),
    "t5": Family(
        "T5Config", "T5EncoderModel",
        T5, spread=0.15,
    ),
    "bart": Family("BartConfig", "bart.modeling_bart:BartEncoder", _BART),
    "gpt2": Family(
        "GPT2Config", "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_embd": FEATURES, "n_layer": LAYERS, "n_head": HEADS,
         "n_positions": 16, **SPECIAL},
    ),
    "gpt-neox": text("GPTNeoX", "ForCausalLM", **SPECIAL, rotary_pct=0.5),
    "opt": Family(
        "OPTConfig", "OPTForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": FEATURES, "num_hidden_layers": LAYERS,
         "num_attention_heads": HEADS, "ffn_dim": HIDDEN, "max_position_embeddings": 16,
         "word_embed_proj_dim": FEATURES, **SPECIAL},
    ),
    "bloom": Family(
        "BloomConfig", "BloomForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": FEATURES, "n_layer": LAYERS, "n_head": HEADS,
         **SPECIAL},
    ),
    "llama": decoder("Llama"),
    "mistral": decoder("Mistral", sliding_window=4),
    "qwen2": decoder("Qwen2"),
    "qwen3": decoder("Qwen3", head_dim=4),
    "gemma": decoder("Gemma", head_dim=4),
    "phi3": decoder("Phi3", partial_rotary_factor=0.5),
    "olmo2": decoder("Olmo2"),
    "granite": decoder(
        "Granite", attention_multiplier=0.25, embedding_multiplier=4.0, residual_multiplier=0.5,
        logits_scaling=2.0,
    ),
    "smollm3": decoder("SmolLM3"),
}  # fmt: skip
"""The families in the order of their kinds: encoders of texts, of images, of sound; decoders."""
