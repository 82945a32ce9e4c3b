"""The true shapes of a base model of each family, lowered from a config alone."""

from __future__ import annotations

import multiprocessing
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.families.models import FAMILIES, SPECIAL, find_class
from benchmarks.families.stages import refusal_of

TOKENS = 128
"""Of a text."""
RECIPE, TARGET = "is", "cpu"


@dataclass(frozen=True)
class Shape:
    """A published model.

    Attributes:
        model: its name on the hub.
        settings: what differs from the defaults of the family's config class.
        tokens: of a text; None for images and sound.
    """

    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    tokens: int | None = None


@dataclass
class Found:
    """What lowering a shape took and gave; nothing was run.

    Attributes:
        seconds, memory: of loading, tracing and lowering; the seconds of processors, the memory in
            bytes, of a process of its own.
        levels, bootstraps: of the lowered program.
        predicted: seconds of one input on two cores.
        program_memory: bytes that the computation needs.
        refusal: the error that ended it.
    """

    seconds: float = float("nan")
    memory: int = 0
    levels: int = 0
    bootstraps: int = 0
    predicted: float = float("nan")
    program_memory: int = 0
    refusal: str = ""


def lower(name: str) -> Found:
    """Lower the shape of a family, in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_lowered, name).result()


def _lowered(name: str) -> Found:
    from atlasc.compilation.single_stages import inspect
    from atlasc.compilation.stage_options import InspectOptions

    shape, found = SHAPES[name], Found()
    started = time.process_time()
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from torch.export
        write_config(name, Path(scratch))
        options = InspectOptions(sequence_length=shape.tokens, target=TARGET, recipe=RECIPE)
        try:
            costs = inspect(scratch, options).summary
        except Exception as error:
            found.refusal = refusal_of(error).replace(scratch, "config.json")
            return found
    found.seconds = time.process_time() - started
    found.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found.levels, found.bootstraps = int(costs["levels_total"]), int(costs["bootstraps"])
    found.predicted, found.program_memory = float(costs["seconds"]), int(costs["memory_bytes"])
    return found


def write_config(name: str, folder: Path) -> None:
    """Write the ``config.json`` of a family's base shape."""
    family = FAMILIES[name]
    config = find_class(family.config)(**SHAPES[name].settings)
    config.architectures = [family.model.rpartition(":")[2]]
    config.save_pretrained(folder)


_BASE: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}


def _decoder(
    model: str, width: int, layers: int, heads: tuple[int, int], hidden: int, **settings: Any
) -> Shape:
    """A decoder with grouped heads: of queries, and of keys and values."""
    given = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": hidden,
        **SPECIAL,
    }
    return Shape(model, {**given, **settings}, TOKENS)


SHAPES: dict[str, Shape] = {
    "bert": Shape("google-bert/bert-base-uncased", {}, TOKENS),
    "roberta": Shape("FacebookAI/roberta-base", {"max_position_embeddings": 514}, TOKENS),
    "distilbert": Shape("distilbert/distilbert-base-uncased", {}, TOKENS),
    "electra": Shape(
        "google/electra-base-discriminator", {**_BASE, "embedding_size": 768}, TOKENS
    ),
    "albert": Shape("albert/albert-base-v2", {**_BASE, "embedding_size": 128}, TOKENS),
    "xlm-roberta": Shape("FacebookAI/xlm-roberta-base", {"max_position_embeddings": 514}, TOKENS),
    "camembert": Shape("almanach/camembert-base", {"max_position_embeddings": 514}, TOKENS),
    "mpnet": Shape("microsoft/mpnet-base", {"max_position_embeddings": 514}, TOKENS),
    "deberta-v2": Shape(
        "microsoft/deberta-v3-base",
        {**_BASE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
         "position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm",
         "position_biased_input": False, "type_vocab_size": 0},
        TOKENS,
    ),
    "modernbert": Shape("answerdotai/ModernBERT-base", {}, TOKENS),
    "vit": Shape("google/vit-base-patch16-224"),
    "deit": Shape("facebook/deit-base-patch16-224"),
    "beit": Shape("microsoft/beit-base-patch16-224"),
    "dinov2": Shape("facebook/dinov2-base at 224 pixels", {"patch_size": 14}),
    "siglip": Shape("google/siglip-base-patch16-224"),
    "clip (vision)": Shape("openai/clip-vit-base-patch16", {"patch_size": 16}),
    "clip (text)": Shape("openai/clip-vit-base-patch16", {}, 77),
    "swin": Shape("microsoft/swin-tiny-patch4-window7-224"),
    "ast": Shape("MIT/ast-finetuned-audioset-10-10-0.4593"),
    "wav2vec2": Shape("facebook/wav2vec2-base"),
    "whisper": Shape(
        "openai/whisper-base",
        {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8,
         "encoder_ffn_dim": 2048},
    ),
    "t5": Shape(
        "google-t5/t5-base", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        TOKENS,
    ),
    "bart": Shape(
        "facebook/bart-base",
        {"d_model": 768, "encoder_layers": 6, "encoder_ffn_dim": 3072,
         "encoder_attention_heads": 12},
        TOKENS,
    ),
    "gpt2": Shape("openai-community/gpt2", {}, TOKENS),
    "gpt-neox": Shape("EleutherAI/pythia-160m", {**_BASE, "vocab_size": 50304}, TOKENS),
    "opt": Shape("facebook/opt-125m", {}, TOKENS),
    "bloom": Shape(
        "bigscience/bloom-560m", {"hidden_size": 1024, "n_layer": 24, "n_head": 16}, TOKENS
    ),
    "llama": _decoder("meta-llama/Llama-3.2-1B", 2048, 16, (32, 8), 8192, vocab_size=128256),
    "mistral": _decoder("mistralai/Mistral-7B-v0.1", 4096, 32, (32, 8), 14336),
    "qwen2": _decoder("Qwen/Qwen2-0.5B", 896, 24, (14, 2), 4864),
    "qwen3": _decoder("Qwen/Qwen3-0.6B", 1024, 28, (16, 8), 3072, head_dim=128),
    "gemma": _decoder("google/gemma-2b", 2048, 18, (8, 1), 16384, head_dim=256),
    "phi3": _decoder("microsoft/Phi-3-mini-4k-instruct", 3072, 32, (32, 32), 8192),
    "olmo2": _decoder("allenai/OLMo-2-0425-1B", 2048, 16, (16, 16), 8192),
    "granite": _decoder(
        "ibm-granite/granite-3.1-2b-base", 2048, 40, (32, 8), 8192, attention_multiplier=0.015625,
        embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0,
    ),
    "smollm3": _decoder("HuggingFaceTB/SmolLM3-3B", 2048, 36, (16, 4), 11008),
}  # fmt: skip
"""By family. Their configs are the defaults of transformers, which mostly are those of the base
model, with the settings named here; so no file is downloaded."""
