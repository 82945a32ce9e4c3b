"""Tiny models of 59 further architectures of transformers, with which no rule began.

They are compiled under the recipe `is` alone: what counts is whether a program comes out that
answers as HuggingFace does, or a reason. Some were taken because they are hard: states, routing,
windows, convolutions between blocks, attention that is not a softmax.
"""

from __future__ import annotations

from benchmarks.families.models import (
    FEATURES,
    GROUPED,
    HEADS,
    HIDDEN,
    LAYERS,
    SIZES,
    SPECIAL,
    T5,
    VOCABULARY,
    Family,
    decoder,
    image,
    text,
)

_XLM = {
    "vocab_size": VOCABULARY, "emb_dim": FEATURES, "n_layers": LAYERS, "n_heads": HEADS,
    "max_position_embeddings": 16, "use_lang_emb": False, "n_langs": 1, "bos_index": 1,
    "eos_index": 2, "pad_index": 0, "pad_token_id": 0,
}  # fmt: skip
_GPT = {
    "vocab_size": VOCABULARY, "n_embd": FEATURES, "n_layer": LAYERS, "n_head": HEADS,
    "n_positions": 16, **SPECIAL,
}  # fmt: skip
_SEQUENCES = {
    "vocab_size": VOCABULARY, "d_model": FEATURES, "encoder_layers": LAYERS, "decoder_layers": 1,
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN, "max_position_embeddings": 16, **SPECIAL,
}  # fmt: skip
_WAVES = {
    **SIZES, "vocab_size": VOCABULARY, "conv_dim": (8, 8), "conv_kernel": (10, 3),
    "conv_stride": (5, 2), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
_CLASSES = "ForSequenceClassification"


def _waves(config: str, **settings: object) -> Family:
    return Family(f"{config}Config", f"{config}Model", {**_WAVES, **settings}, "waves", (160,))


FURTHER: dict[str, Family] = {
    "esm": text("Esm", _CLASSES, pad_token_id=1, mask_token_id=2, position_embedding_type="rotary"),
    "squeezebert": text("SqueezeBert", _CLASSES, embedding_size=FEATURES),
    "mobilebert": text(
        "MobileBert", _CLASSES, embedding_size=8, intra_bottleneck_size=8,
        true_hidden_size=8, num_feedforward_networks=2,
    ),
    "roformer": text("RoFormer", _CLASSES, embedding_size=FEATURES),
    "flaubert": Family("FlaubertConfig", f"Flaubert{_CLASSES}", _XLM),
    "deberta": text("Deberta", _CLASSES, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "ernie": text("Ernie", _CLASSES),
    "rembert": text("RemBert", _CLASSES, input_embedding_size=12),
    "megatron-bert": text("MegatronBert", _CLASSES),
    "convbert": text("ConvBert", _CLASSES, embedding_size=12, head_ratio=1, conv_kernel_size=3),
    "fnet": text("FNet", _CLASSES),
    "ibert": text("IBert", _CLASSES),
    "roberta-prelayernorm": text("RobertaPreLayerNorm", _CLASSES),
    "xmod": text("Xmod", _CLASSES, languages=["en_XX"], default_language="en_XX"),
    "data2vec-text": text("Data2VecText", _CLASSES),
    "nystromformer": text("Nystromformer", _CLASSES, num_landmarks=4, segment_means_seq_len=8),
    "big-bird": text("BigBird", _CLASSES, block_size=4, num_random_blocks=1),
    "longformer": text("Longformer", _CLASSES, attention_window=4),
    "xlnet": Family(
        "XLNetConfig", f"XLNet{_CLASSES}",
        {"vocab_size": VOCABULARY, "d_model": FEATURES, "n_layer": LAYERS, "n_head": HEADS,
         "d_inner": HIDDEN},
    ),
    "bert-generation": text("BertGeneration", "Encoder"),
    "nomic-bert": text("NomicBert", "Model"),
    "eurobert": Family("EuroBertConfig", f"EuroBert{_CLASSES}", GROUPED),
    "layoutlm": text("LayoutLM", _CLASSES, max_2d_position_embeddings=16),
    "umt5": Family(
        "UMT5Config", "UMT5EncoderModel",
        T5, spread=0.15,
    ),
    "mbart": Family("MBartConfig", "mbart.modeling_mbart:MBartEncoder", _SEQUENCES),
    "pegasus": Family("PegasusConfig", "pegasus.modeling_pegasus:PegasusEncoder", _SEQUENCES),
    "levit": Family(
        "LevitConfig", "LevitForImageClassification",
        {"image_size": 32, "hidden_sizes": [16, 16, 16], "num_attention_heads": [2, 2, 2],
         "depths": [1, 1, 1], "key_dim": [4, 4, 4], "mlp_ratio": [2, 2, 2],
         "attention_ratio": [2, 2, 2]},
        "pixels", (3, 32, 32), spread=0.15,
    ),
    "vit-msn": image("ViTMSN"),
    "dinov2-with-registers": image("Dinov2WithRegisters"),
    "dinov3-vit": image("DINOv3ViT", "Model"),
    "data2vec-vision": image("Data2VecVision"),
    "segformer": Family(
        "SegformerConfig", "SegformerForImageClassification",
        {"hidden_sizes": [8, 16], "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1],
         "num_attention_heads": [1, 2], "patch_sizes": [3, 3], "strides": [2, 2],
         "mlp_ratios": [2, 2]},
        "pixels", (3, 16, 16),
    ),
    "convnext": Family(
        "ConvNextConfig", "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": 16},
        "pixels", (3, 16, 16),
    ),
    "ijepa": image("IJepa"),
    "hubert": _waves("Hubert"),
    "wavlm": _waves("WavLM", num_buckets=8, max_bucket_distance=16),
    "unispeech-sat": _waves("UniSpeechSat"),
    "data2vec-audio": _waves("Data2VecAudio", conv_pos_kernel_size=3, num_conv_pos_embeddings=2),
    "gptj": Family("GPTJConfig", "GPTJForCausalLM", {**_GPT, "rotary_dim": 4}),
    "gpt-neo": Family(
        "GPTNeoConfig", "GPTNeoForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": FEATURES, "num_layers": LAYERS,
         "num_heads": HEADS, "intermediate_size": HIDDEN, "max_position_embeddings": 16,
         "attention_types": [[["global", "local"], 1]], "window_size": 4, **SPECIAL},
        spread=0.15,
    ),
    "codegen": Family(
        "CodeGenConfig", "CodeGenForCausalLM", {**_GPT, "n_head": 4, "rotary_dim": 4}
    ),
    "falcon": text("Falcon", "ForCausalLM", **SPECIAL),
    "mpt": Family(
        "MptConfig", "MptForCausalLM",
        {"vocab_size": VOCABULARY, "d_model": FEATURES, "n_layers": LAYERS, "n_heads": HEADS,
         "max_seq_len": 16, **SPECIAL},
    ),
    "starcoder2": decoder("Starcoder2"),
    "gpt-bigcode": Family("GPTBigCodeConfig", "GPTBigCodeForCausalLM", _GPT),
    "cohere": decoder("Cohere"),
    "glm": decoder("Glm", head_dim=4, partial_rotary_factor=0.5),
    "helium": decoder("Helium", head_dim=4),
    "stablelm": decoder("StableLm", partial_rotary_factor=0.5),
    "phi": decoder("Phi", partial_rotary_factor=0.5),
    "gemma2": decoder("Gemma2", head_dim=4, query_pre_attn_scalar=4, sliding_window=4),
    "olmo": decoder("Olmo"),
    "nemotron": decoder("Nemotron", partial_rotary_factor=0.5),
    "apertus": decoder(
        "Apertus", rope_parameters={"rope_type": "default", "rope_theta": 10000.0}
    ),
    "diffllama": decoder("DiffLlama", num_attention_heads=4, num_key_value_heads=2),
    "biogpt": text("BioGpt", "ForCausalLM", **SPECIAL),
    "xglm": Family(
        "XGLMConfig", "XGLMForCausalLM",
        {"vocab_size": VOCABULARY, "d_model": FEATURES, "num_layers": LAYERS,
         "attention_heads": HEADS, "ffn_dim": HIDDEN, "max_position_embeddings": 16, **SPECIAL},
    ),
    "mixtral": decoder("Mixtral", num_local_experts=2, num_experts_per_tok=1),
    "rwkv": Family(
        "RwkvConfig", "RwkvForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": FEATURES, "num_hidden_layers": LAYERS,
         "attention_hidden_size": FEATURES, "intermediate_size": HIDDEN, "context_length": 16,
         **SPECIAL},
    ),
}  # fmt: skip
"""The architectures in the order of their kinds: encoders of texts, of images, of sound;
decoders."""
