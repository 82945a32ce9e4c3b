"""HuggingFace directories: architecture and weights, read without running their code."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from atlasc.ir.errors import AtlasError, explained, first_line
from atlasc.ir.files.arrays import MAX_HEADER, MAX_WEIGHTS
from atlasc.ir.files.json_text import read_json
from atlasc.ir.files.plain import MIB, open_plain
from atlasc.loading.torch_files import check_records

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
ATTENTION = "sdpa"
"""How the models of HuggingFace compute attention: `torch.export` makes one op of it."""
MAX_INDEX = 64 * MIB
SLACK = 1 << 26
"""Numbers of a model that are not in the files of its weights: masks, positions."""


class _WeightsIndex(BaseModel):
    weight_map: dict[str, str]


def build(config: PretrainedConfig, model_class: Any, *, meta: bool) -> torch.nn.Module:
    """The architecture with random weights, or without any on the `meta` device."""
    import torch

    what = f"{model_class.__name__} cannot be built from its config"
    with explained(what), torch.device("meta" if meta else "cpu"):
        return model_class._from_config(config, attn_implementation=ATTENTION, dtype=torch.float32)


def load_weights(directory: Path, config: PretrainedConfig, model_class: Any) -> torch.nn.Module:
    """The architecture with the directory's weights.

    Raises:
        AtlasError: weights are missing, damaged, or have another size than in the config.
    """
    import torch

    safe = any((directory / name).is_file() for name in SAFETENSORS)
    if not safe and not any((directory / name).is_file() for name in PICKLED_WEIGHTS):
        raise AtlasError(
            f"model directory {directory} has no weights",
            why=f"neither {SAFETENSORS[0]} nor {PICKLED_WEIGHTS[0]} is there",
            remedy="only `depth` and `inspect` work on a bare config; add the weights for the rest",
        )
    size = _check_files(directory, safe)
    check_fits(build(config, model_class, meta=True), size, directory)
    # Sentence encoders are often saved without the pooler that their base class has by default.
    remedy = "copy the files again; a .bin file must hold tensors only"
    for extra in ({}, {"add_pooling_layer": False}):
        with explained("the model's weights cannot be read", directory, remedy):
            module, info = model_class.from_pretrained(
                str(directory),
                config=config,
                attn_implementation=ATTENTION,
                dtype=torch.float32,
                use_safetensors=safe,
                weights_only=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **extra,
            )
        missing = sorted(info["missing_keys"])
        if not missing or extra or not all(name.startswith("pooler.") for name in missing):
            break
    check_complete(directory, missing, info["mismatched_keys"])
    return module


def _check_files(directory: Path, safe: bool) -> int:
    """Bytes of all files of weights; raises AtlasError if one is damaged or missing."""
    single, index = SAFETENSORS if safe else PICKLED_WEIGHTS
    names = [single]
    if not (directory / single).is_file():
        names = sorted(set(_read_index(directory / index)))
    return sum(check_weights_file(directory / name) for name in names)


def check_weights_file(path: Path) -> int:
    """Bytes of a file of weights; raises AtlasError if it is missing or damaged."""
    from safetensors import safe_open

    try:
        with open_plain(path, MAX_WEIGHTS) as file:
            header = int.from_bytes(file.read(8), "little")
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            if path.suffix != ".safetensors":
                check_records(file)
            elif header > MAX_HEADER:
                raise ValueError("its header is too large")
            else:
                with safe_open(path, framework="pt"):
                    pass
    except Exception as error:
        raise AtlasError(
            f"weights file {path.name} is missing or damaged",
            where=str(path),
            why=first_line(error),
            remedy="copy or download it again",
        ) from error
    return size


def check_fits(module: torch.nn.Module, size: int, where: Path) -> None:
    """Raise AtlasError for an architecture that is far larger than the files of its weights."""
    wanted = sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))
    if wanted > 2 * size + SLACK:
        raise AtlasError(
            "config.json describes a larger model than its weights",
            where=str(where),
            why=f"it asks for {wanted} numbers, and the files have {size} bytes",
            remedy="use the config.json that was saved with these weights",
        )


def _read_index(path: Path) -> list[str]:
    """The files of weights in an index; raises AtlasError if one lies in another folder."""
    names = list(read_json(path, _WeightsIndex, "weights index", MAX_INDEX).weight_map.values())
    for name in names:
        if Path(name).name != name or not name.isprintable():
            raise AtlasError(
                f"weights index {path.name} names {name}, which is not in its folder",
                where=str(path),
                remedy="copy or download it again",
            )
    return names


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
        with warnings.catch_warnings():  # torch's, of layers without elements for example
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
