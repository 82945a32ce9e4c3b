"""HuggingFace directories: config, architecture and weights, read without running their code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError
from atlasc.loading.torch_files import first_line

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SAVE_REMEDY = "write it with model.save_pretrained(directory)"


def read_config(directory: Path, head: bool) -> tuple[PretrainedConfig, type]:
    """The config and the architecture class that it names."""
    import transformers

    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise AtlasError(
            "config.json is not valid JSON", where=str(path), why=str(error), remedy=SAVE_REMEDY
        ) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("model_type"), str):
        raise AtlasError(
            "config.json does not name a model_type", where=str(path), remedy=SAVE_REMEDY
        )
    if "quantization_config" in raw:
        raise AtlasError(
            "the model's weights are quantized",
            where=str(path),
            remedy="use the checkpoint in float16, bfloat16 or float32",
        )
    names = raw.get("architectures") or []
    if raw["model_type"] not in transformers.CONFIG_MAPPING:
        raise _unknown_architecture(f"model_type {raw['model_type']!r}", path)
    try:
        config = transformers.AutoConfig.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise AtlasError(
            "config.json has values that do not make a model",
            where=str(path),
            why=first_line(error),
        ) from error
    base = transformers.AutoModel._model_mapping.get(type(config), None)
    model_class = getattr(transformers, str(names[0]), None) if names and head else base
    is_model = isinstance(model_class, type) and issubclass(
        model_class, transformers.PreTrainedModel
    )
    if not is_model or model_class.config_class is not type(config):  # type: ignore[union-attr]
        raise _unknown_architecture(f"architecture {names[0] if names else 'none'}", path)
    return config, model_class  # type: ignore[return-value]


def _unknown_architecture(what: str, path: Path) -> AtlasError:
    return AtlasError(
        f"unknown {what}",
        where=str(path),
        why="this transformers version has no such model, and code that comes with a model is "
        "never run",
        remedy="export the model yourself: "
        "torch.export.save(torch.export.export(model, args, strict=False), 'model.pt2')",
    )


def build(
    config: PretrainedConfig, model_class: Any, attention: str, *, meta: bool
) -> torch.nn.Module:
    """The architecture with random weights, or without any on the `meta` device."""
    import torch

    try:
        with torch.device("meta" if meta else "cpu"):
            return model_class._from_config(
                config, attn_implementation=attention, dtype=torch.float32
            )
    except Exception as error:
        raise AtlasError(
            f"{model_class.__name__} cannot be built from its config", why=first_line(error)
        ) from error


def load_weights(
    directory: Path, config: PretrainedConfig, model_class: Any, attention: str
) -> torch.nn.Module:
    """The architecture with the directory's weights; all of them must be there and fit."""
    import torch

    safe = any((directory / name).is_file() for name in SAFETENSORS)
    if not safe and not any((directory / name).is_file() for name in PICKLED_WEIGHTS):
        raise AtlasError(
            f"model directory {directory} has no weights",
            why=f"neither {SAFETENSORS[0]} nor {PICKLED_WEIGHTS[0]} is there",
            remedy="only `depth` and `inspect` work on a bare config; add the weights for the rest",
        )
    _check_safetensors(directory)
    # Sentence encoders are often saved without the pooler that their base class has by default.
    for extra in ({}, {"add_pooling_layer": False}):
        try:
            module, info = model_class.from_pretrained(
                str(directory),
                config=config,
                attn_implementation=attention,
                dtype=torch.float32,
                use_safetensors=safe,
                weights_only=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **extra,
            )
        except Exception as error:
            raise AtlasError(
                "the model's weights cannot be read",
                where=str(directory),
                why=first_line(error),
                remedy="copy the files again; a .bin file must hold tensors only",
            ) from error
        missing = sorted(info["missing_keys"])
        if not missing or extra or not all(name.startswith("pooler.") for name in missing):
            break
    check_complete(directory, missing, info["mismatched_keys"])
    return module


def _check_safetensors(directory: Path) -> None:
    """Open each safetensors file: a damaged or missing one is named before anything is built."""
    from safetensors import SafetensorError, safe_open

    files = set(directory.glob("*.safetensors"))
    index = directory / SAFETENSORS[1]
    try:
        if index.is_file():
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            files |= {directory / name for name in names}
        for path in sorted(files):
            with safe_open(path, framework="pt"):
                pass
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError) as error:
        culprit = index if isinstance(error, (ValueError, KeyError, AttributeError)) else path
        raise AtlasError(
            f"weights file {culprit.name} is missing or damaged",
            where=str(culprit),
            why=first_line(error),
            remedy="copy or download it again",
        ) from error


def check_complete(directory: Path, missing: list[str], mismatched: Any) -> None:
    """Refuse weights that are missing, or (name, shape found, shape expected) that do not fit."""
    if mismatched:
        name, found, expected = sorted(mismatched)[0]
        raise AtlasError(
            f"{len(mismatched)} weights do not have the size that config.json implies",
            where=f"{directory}: {name}",
            why=f"the file has {tuple(found)}, the config asks for {tuple(expected)}",
            remedy="use the config.json that was saved with these weights",
        )
    if missing:
        raise AtlasError(
            f"{len(missing)} weights of the architecture are missing",
            where=str(directory),
            why=", ".join(missing[:5]) + (", ..." if len(missing) > 5 else ""),
            remedy="use a checkpoint that was trained for this task, or load its base model",
        )


@contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The transformers module, offline, without its progress bars and warnings."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
