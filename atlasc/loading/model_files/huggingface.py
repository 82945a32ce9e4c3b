"""HuggingFace directories: config, weights and tokenizer, read without running their code.

Every call is restricted to local files, so that nothing is downloaded.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, leaves, open_plain, read_json
from atlasc.loading.model_files.declared import require_plain_tokens
from atlasc.loading.model_files.sentence import Sentences
from atlasc.loading.texts.tokenizer import (
    MAX_TOKENIZER,
    TOKENIZER_REMEDY,
    ProgramTokenizer,
    prompted,
    read_tokenizer,
)

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

SAVE_REMEDY = "write the directory with model.save_pretrained(directory)"
MAX_CONFIG = 16 * MIB
LIMITS = (
    (re.compile(r"layers?$|depths?$|blocks$|stages?$"), 1_000),
    (re.compile(r"experts$"), 1 << 14),
    (re.compile(r"vocab|position|token|length|window|context"), 1 << 25),
    (re.compile(r"label|class"), 1 << 16),
    (re.compile(r"image|patch|channels|frames"), 1 << 15),
    (re.compile(r""), 1 << 20),
)
"""Pattern of member names -> greatest allowed number; the first matching pattern counts."""
IDS = re.compile(r"ids?$|label2id|seed|theta")
"""Members whose numbers are no sizes."""
COUNTS = re.compile(r"^(num|n|max)_|_size$")
REFUSED = {
    "quantization_config": (
        "the model's weights are quantized",
        "use the checkpoint in float16, bfloat16 or float32",
    ),
    "transformers_weights": (
        "config.json names another file of weights than the usual one",
        "delete the member, and rename that file to model.safetensors",
    ),
}
"""Members of config.json that make transformers read other weights than the checked ones."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json")
FURTHER_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
)
LOCAL = {"local_files_only": True, "trust_remote_code": False}


def read_config(directory: Path) -> tuple[PretrainedConfig, type]:
    """The config of a directory, and the architecture class that the config names.

    Raises AtlasError if config.json is no JSON object, has sizes that no model has, or names an
    unknown model.
    """
    import transformers

    path = directory / "config.json"
    raw = read_object(path)
    if not isinstance(raw.get("model_type"), str):
        raise AtlasError(
            "config.json does not name a model_type", where=str(path), remedy=SAVE_REMEDY
        )
    for member, (what, remedy) in REFUSED.items():
        if member in raw:
            raise AtlasError(what, where=f"{path}: {member}", remedy=remedy)
    check_sizes(raw, path)
    named = raw.get("architectures") or []
    names = named if isinstance(named, list) else [named]
    if raw["model_type"] not in transformers.CONFIG_MAPPING:
        raise _unknown_architecture(f"model_type {raw['model_type']!r}", path)
    with explained("config.json has values that describe no model", path):
        config = transformers.AutoConfig.from_pretrained(str(directory), **LOCAL)
        if contradictory_labels(raw):  # like transformers before version 5
            config.id2label = {int(number): name for number, name in raw["id2label"].items()}
    base = transformers.AutoModel._model_mapping.get(type(config), None)
    model_class = class_named(str(names[0]), config) if names else base
    if model_class is None:
        raise _unknown_architecture(f"architecture {names[0] if names else 'none'}", path)
    return config, model_class


def class_named(name: str, config: PretrainedConfig) -> Any:
    """The class of a model for a config, or None.

    Many parts of models, such as the encoder of an encoder-decoder, are classes of a model's own
    module of transformers, and not of its top level.
    """
    import transformers

    own = type(config).__module__.replace(".configuration_", ".modeling_")
    places = [transformers]
    if own.startswith("transformers.models."):
        with suppress(ImportError):
            places.append(import_module(own))
    for place in places:
        found: Any = getattr(place, name, None)
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
        if is_model and found.config_class is type(config):
            return found
    return None


def read_object(path: Path, *, links: bool = True) -> dict[str, Any]:
    """The members of config.json; raises AtlasError if it is no JSON object."""
    what = "the config"
    return read_json(path, dict[str, Any], what, MAX_CONFIG, remedy=SAVE_REMEDY, links=links)


def contradictory_labels(raw: dict[str, Any]) -> tuple[int, int] | None:
    """The numbers of classes by `id2label` and by `num_labels`; None if they agree."""
    names, number = raw.get("id2label"), raw.get("num_labels")
    if not isinstance(names, dict) or type(number) is not int or len(names) == number:
        return None
    return len(names), number


def labels_note(directory: Path, counts: tuple[int, int], found: int) -> tuple[str, str]:
    """A note on contradicting numbers of classes: ``found`` is the number in the weights."""
    return (
        f"config.json says both {counts[0]} and {counts[1]} classes; the weights have {found}",
        f"  why: id2label names {counts[0]}, and num_labels is {counts[1]}\n"
        f"  where: {directory / 'config.json'}",
    )


def check_sizes(raw: dict[str, Any], path: Path) -> None:
    """Raise AtlasError if a config has a size that no model has."""
    for name, value in leaves(raw):
        if type(value) is not int:
            continue
        limit = next(limit for pattern, limit in LIMITS if pattern.search(name))
        if not IDS.search(name) and abs(value) > limit:
            raise AtlasError(
                f"{path.name} has a size that is too large: {name} is {value}",
                where=str(path),
                why=f"at most {limit} is allowed",
                remedy=SAVE_REMEDY,
            )
        if value < -1 and COUNTS.search(name):  # some models write -1 for "no limit"
            raise AtlasError(
                f"{path.name} has a negative size: {name} is {value}",
                where=str(path),
                remedy=SAVE_REMEDY,
            )


def _unknown_architecture(what: str, path: Path) -> AtlasError:
    return AtlasError(
        f"unknown {what}",
        where=str(path),
        why="this transformers version has no such model, and code that comes with a model is "
        "never run",
        remedy="load the model in Python with the code that it comes with, and give the module: "
        "atlasc.compile(model, data, tokenizer=tokenizer)",
    )


def attention_of(model_class: Any) -> str:
    """The implementation of attention that a HuggingFace model is built with: that which
    `torch.export` turns into one op, where the model has it.
    """
    return "sdpa" if model_class._supports_sdpa else "eager"


def build(config: PretrainedConfig, model_class: Any, *, meta: bool) -> torch.nn.Module:
    """The architecture with random weights; with ``meta``, on the `meta` device without weights."""
    import torch

    what = f"{model_class.__name__} cannot be built from its config"
    attention = attention_of(model_class)
    with explained(what), torch.device("meta" if meta else "cpu"):
        return model_class._from_config(config, attn_implementation=attention, dtype=torch.float32)


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The transformers module without its progress bars and warnings."""
    import transformers
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():  # from torch, for example about layers without elements
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def has_tokenizer(directory: Path) -> bool:
    """Whether there are files of a tokenizer in a directory."""
    return any((directory / name).is_file() for name in TOKENIZER_FILES)


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase | ProgramTokenizer | None:
    """The tokenizer of a directory, or of the client of a compiled program; None if there is none.

    Raises AtlasError if its files cannot be read.
    """
    if not has_tokenizer(directory):
        return None
    if (compiled := read_tokenizer(directory)) is not None:
        return compiled
    for name in (*TOKENIZER_FILES, *FURTHER_FILES):
        if (directory / name).exists():
            open_plain(directory / name, MAX_TOKENIZER).close()
    with quiet_transformers() as transformers, tokenizer_errors(directory):
        require_plain_tokens(directory)
        tokenizer: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(
            str(directory), **LOCAL
        )
    return tokenizer


def read_as_sentences(tokenizer: Any, sentences: Sentences) -> Any:
    """A tokenizer that reads texts as sentence-transformers does: in lower case, up to a length,
    after a prompt.
    """
    from tokenizers.normalizers import Lowercase, Sequence

    if sentences.most_tokens is not None:
        tokenizer.model_max_length = sentences.most_tokens
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if sentences.lower_case and backend is not None:
        own = backend.normalizer
        backend.normalizer = Lowercase() if own is None else Sequence([Lowercase(), own])
    return prompted(tokenizer, sentences.prompt) if sentences.prompt else tokenizer


def tokenizer_errors(directory: Path) -> AbstractContextManager[None]:
    """A context that turns errors of a tokenizer into AtlasErrors that name its directory."""
    return explained("the model's tokenizer cannot be read", directory, TOKENIZER_REMEDY)
