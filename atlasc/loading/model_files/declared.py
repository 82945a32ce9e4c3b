"""Members of ``config.json`` and of a tokenizer's files that no class of transformers declares.

transformers keeps such a member as an attribute that nothing reads, or drops it, without a word. A
member that the class of the config or of the tokenizer declares is applied by that class. So is a
member of an older version that a config takes and does not keep under its name (`rope_theta`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError, printable
from atlasc.ir.files import MIB, parse_json, read_bytes, read_json
from atlasc.loading.texts.tokenizer import BACKEND, MAX_TOKENIZER

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
MAX_FILE = 16 * MIB
Member = tuple[str, str, Any]
"""Name of the file, name of the member, and its value."""

ORIGIN, SPEED = "says where the folder comes from", "is for speed or memory"
TRAINING, CALLER = "is for training", "chooses what a call returns beside the answer"
TEXT, DECODING = "is for writing text", "is for turning ids into a text"
HARMLESS: Mapping[str, Mapping[str, str]] = {
    CONFIG: {
        "_name_or_path": ORIGIN, "_commit_hash": ORIGIN, "transformers_version": ORIGIN,
        "name_or_path": ORIGIN, "model_name": ORIGIN, "adapters": ORIGIN, "license": ORIGIN,
        "torch_dtype": "is the precision of the files; atlasc computes in float32",
        "use_bfloat16": "is the precision of the files; atlasc computes in float32",
        "attn_implementation": SPEED, "_attn_implementation": SPEED, "use_flash_attn": SPEED,
        "_flash_attn_2_enabled": SPEED, "_attn_implementation_autoset": SPEED, "use_cache": SPEED,
        "use_memory_efficient_attention": SPEED, "unpad_inputs": SPEED, "use_sdpa": SPEED,
        "chunk_size_feed_forward": SPEED, "cache_implementation": SPEED, "torchscript": SPEED,
        "gradient_checkpointing": TRAINING, "finetuning_task": TRAINING,
        "initializer_range": TRAINING, "initializer_factor": TRAINING, "loss_type": TRAINING,
        "output_attentions": CALLER, "output_hidden_states": CALLER, "output_past": CALLER,
        "return_dict": CALLER, "_num_labels": "is the number of names in id2label",
        "num_labels": "is the number of names in id2label",
        "tokenizer_class": "names a class; the tokenizer's own files are read",
        "pad_token_id": "is not read by this model", "bos_token_id": "is not read by this model",
        "eos_token_id": "is not read by this model", "sep_token_id": "is not read by this model",
        "cls_token_id": "is not read by this model", "mask_token_id": "is not read by this model",
        "tie_word_embeddings": "is seen in the weights",
        "tie_encoder_decoder": "is seen in the weights", "tf_legacy_loss": TRAINING,
        "is_decoder": "is what the architecture is", "add_cross_attention": "is a decoder's",
        "cross_attention_hidden_size": "is a decoder's", "id2label": "names the classes",
        "label2id": "names the classes", "sentence_transformers": "is read as a CrossEncoder's",
        "sbert_ce_default_activation_function": "is read as a CrossEncoder's",
        "task_specific_params": "has a note of its own", "problem_type": "is applied",
        "architectures": "is applied", "model_type": "is applied",
        "auto_map": "names code, which is never run; the class of transformers is taken",
    },
    TOKENIZER: {
        "name_or_path": ORIGIN, "special_tokens_map_file": ORIGIN, "tokenizer_file": ORIGIN,
        "transformers_version": ORIGIN, "backend": ORIGIN, "is_local": ORIGIN,
        "local_files_only": ORIGIN, "vocab_file": ORIGIN, "processor_class": ORIGIN,
        "auto_map": "names code, which is never run", "use_fast": SPEED, "from_slow": SPEED,
        "model_input_names": "names arrays, which the model chooses",
        "clean_up_tokenization_spaces": DECODING, "spaces_between_special_tokens": DECODING,
        "decode_with_prefix_space": DECODING, "errors": DECODING, "response_schema": DECODING,
        "chat_template": "is for chats; a text is read as it is",
        "use_default_system_prompt": "is for chats; a text is read as it is",
        "padding_side": "is the side of padding; masks say where it is",
        "pad_to_multiple_of": "pads; programs have a length of their own",
        "pad_token_type_id": "is the segment of padding", "padding": "is an option of a call",
        "max_length": "is an option of a call", "stride": "is an option of a call",
        "truncation": "is an option of a call", "truncation_strategy": "is an option of a call",
        "return_overflowing_tokens": "is an option of a call",
    },
}  # fmt: skip
"""File -> members that change no answer although no class declares them, and why."""
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "pruned_heads": ({},),
    "is_encoder_decoder": (False,),
    "use_mems_eval": (False,),
    "summary_type": ("first", "cls_index"),
    "output_scores": (False,),
}
"""Member of config.json that older versions wrote -> values that are what the model does anyway."""
WRITING = frozenset({
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "bad_words_ids",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "decoder_start_token_id", "prefix",
    "return_dict_in_generate", "output_scores",
})  # fmt: skip
"""Members of config.json that older versions wrote, which only `generate` reads."""
TOKENS = frozenset({
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
    "additional_special_tokens", "extra_special_tokens", "added_tokens_decoder",
})  # fmt: skip
READ = TOKENS | {
    "tokenizer_class", "model_max_length", "truncation_side", "split_special_tokens",
    "add_bos_token", "add_eos_token", "do_lower_case",
}  # fmt: skip
"""Members of a tokenizer's files that the base class, or atlasc, reads."""
TOKEN = frozenset(
    {"__type", "id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}
)
"""Members of a special token."""


def unknown_of_config(directory: Path, config: Any, writes_text: bool) -> Iterator[Member]:
    """Members of config.json that the class of the config does not declare, and that may matter.

    Args:
        directory: folder of the model; without the file there are none.
        config: the config that transformers made of it.
        writes_text: whether the settings of generation concern the model.
    """
    yield from _undeclared(CONFIG, _read(directory / CONFIG), config, writes_text)


def _undeclared(
    shown: str, facts: Mapping[str, Any], config: Any, writes_text: bool
) -> Iterator[Member]:
    known = {*_parameters(type(config)), *getattr(config, "attribute_map", {}), *HARMLESS[CONFIG]}
    rotary = "rope_parameters" in known
    with suppress(Exception):  # a class that needs arguments; attributes that it computes itself
        known |= set(vars(type(config)()))
    for name, value in facts.items():
        part = getattr(config, name, None)
        if isinstance(value, dict) and hasattr(part, "attribute_map"):  # a config of its own
            yield from _undeclared(f"{shown}, {name}", value, part, writes_text)
        elif value in (None, {}, [], *PLAIN.get(name, ())) or name in known:
            continue
        elif name in WRITING:
            if writes_text:
                yield shown, name, value
        elif name in vars(config) or (name.startswith("rope_") and not rotary):
            yield shown, name, value  # otherwise it became another member


def unknown_of_tokenizer(directory: Path) -> Iterator[Member]:
    """Members of a tokenizer's files that its class does not declare, and that may matter."""
    import transformers

    facts = _read(directory / TOKENIZER)
    name = facts.get("tokenizer_class")
    known = {*READ, *HARMLESS[TOKENIZER]}
    names = (name, name.removesuffix("Fast"), f"{name}Fast") if isinstance(name, str) else ()
    for kind in names:
        known |= _parameters(getattr(transformers, kind, object))
    for member, value in facts.items():
        # A member that ends in `_token` names a further special token, as an image's.
        if member not in known and not member.endswith("_token") and value not in (None, {}, []):
            yield TOKENIZER, member, value
    for member, value in _read(directory / SPECIAL_TOKENS).items():
        if member not in TOKENS and not member.endswith("_token") and value not in (None, {}, []):
            yield SPECIAL_TOKENS, member, value


def require_plain_tokens(directory: Path) -> None:
    """Raise an error if a special token of a tokenizer's files has a member that no token has.

    The library tokenizers writes the name of such a member to standard output.

    Raises:
        AtlasError: a token has such a member.
        ValueError: a file is no JSON.
    """
    for path in (directory / name for name in (BACKEND, TOKENIZER, SPECIAL_TOKENS)):
        if not path.is_file():
            continue
        facts = parse_json(read_bytes(path, MAX_TOKENIZER), dict[str, Any])
        for token in _tokens(facts.get("added_tokens") if path.name == BACKEND else facts):
            for member in token.keys() - TOKEN:
                raise AtlasError(
                    f"the model's tokenizer {path} cannot be read",
                    why=f"the token {printable(str(token['content']))[:40]!r} has a member "
                    f"{printable(member)[:40]!r}, which tokens do not have",
                    remedy="delete this member",
                )


def _tokens(facts: Any) -> Iterator[dict[str, Any]]:
    """Tokens in the values of a file, at any depth."""
    if isinstance(facts, dict) and isinstance(facts.get("content"), str):
        yield facts
    elif isinstance(facts, dict | list):
        for one in facts.values() if isinstance(facts, dict) else facts:
            yield from _tokens(one)


def _parameters(kind: type) -> set[str]:
    """What the constructors of a class and of its bases take by name, and its fields."""
    found = set(getattr(kind, "__dataclass_fields__", ()))
    for one in kind.__mro__[:-1]:
        if "__init__" in vars(one):
            found |= set(inspect.signature(vars(one)["__init__"]).parameters)
    return found - {"self", "args", "kwargs"}


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any], "settings", MAX_FILE) if path.is_file() else {}
