"""Models in `.gguf` files, the format of llama.cpp, through transformers' own loader.

transformers turns the settings of a file into a config, its tensors into weights and its vocabulary
into a tokenizer. What it passes over in silence is refused here, because the answers would differ
from the model's: settings that it does not know, and tensors that it does not read.
"""

from __future__ import annotations

import io
import math
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError, explained, first_line, named
from atlasc.loading.model_files.gguf_header import Header, not_whole, read_header
from atlasc.loading.model_files.huggingface import (
    LOCAL,
    attention_of,
    build,
    check_sizes,
    class_named,
    quiet_transformers,
)
from atlasc.loading.model_files.saved import saved_parts

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

FLOATS = frozenset({"F32", "F16", "BF16", "F64"})
ORIGINAL = "load the model's HuggingFace directory (config.json and model.safetensors) instead"
HARMLESS = ("rope.scaling.finetuned", "rope.scaling.original_context_length")
"""Settings that change nothing without ``rope.scaling.type``, which is checked."""


def load_gguf(
    path: Path, *, weights: bool
) -> tuple[torch.nn.Module, Path, TemporaryDirectory[str], list[tuple[str, str]]]:
    """The model of a file in float32, and a folder with its config and its tokenizer.

    Args:
        path: path of the file.
        weights: False leaves the module on the `meta` device.

    Returns:
        The module, the folder, what keeps the folder, and notes.

    Raises:
        AtlasError: the file is damaged or holds a part of a model; transformers does not read its
            architecture, a setting or a tensor; or a package is missing.
    """
    _require_packages(path)
    header = read_header(path)
    if fault := not_whole(path, header):
        raise fault
    with quiet_transformers(), redirect_stderr(io.StringIO()):  # progress bars of the loader
        config, model_class = _config(path, header)
        _require_settings(path, header, config)
        module = build(config, model_class, meta=True)
        _require_tensors(path, header, module)
        tokenizer, notes = _tokenizer(path, header)
        parts = {"config": config, "tokenizer": tokenizer}
        kept, folder = saved_parts(path.stem, parts, module)
        if weights:
            module = _weights(path, config, model_class)
    if packed := sorted(header.types - FLOATS):
        notes.append(
            (
                f"the weights of {path.name} are quantised ({', '.join(packed)})",
                "  why: the program computes with the numbers that they stand for, as transformers "
                "does; its errors are measured against these",
            )
        )
    return module, folder, kept, notes


def _require_packages(path: Path) -> None:
    try:
        import accelerate  # noqa: F401  # transformers demands it for these files
        import gguf  # noqa: F401
    except ImportError as error:
        raise AtlasError(
            f"{path.name} cannot be read",
            where=str(path),
            why=f"reading it needs the packages gguf and accelerate: {first_line(error)}",
            remedy="pip install gguf accelerate",
        ) from error


def _config(path: Path, header: Header) -> tuple[PretrainedConfig, Any]:
    """The config that transformers makes of the settings, and the class of the model."""
    import transformers
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    sizes = {key: value for key, value in header.settings.items() if type(value) is int}
    check_sizes({k: v for k, v in sizes.items() if k.startswith(header.architecture)}, path)
    try:
        config = transformers.AutoConfig.from_pretrained(
            str(path.parent), gguf_file=str(path.absolute()), **LOCAL
        )
    except Exception as error:  # whatever the library raises on settings that it does not expect
        raise AtlasError(
            f"transformers does not read the architecture {header.architecture!r} of {path.name}",
            where=str(path),
            why=first_line(error),
            remedy=ORIGINAL,
        ) from error
    check_sizes(config.to_dict(), path)
    named_class = class_named(str((config.architectures or [""])[0]), config)
    of_kind = (one._model_mapping for one in (AutoModelForCausalLM, AutoModelForSeq2SeqLM))
    found = (mapping.get(type(config), None) for mapping in of_kind)
    model_class = named_class or next((one for one in found if one is not None), None)
    if model_class is None:
        raise AtlasError(
            f"transformers has no model that writes text of the kind {config.model_type!r}",
            where=str(path),
            remedy=ORIGINAL,
        )
    return config, model_class


def _require_settings(path: Path, header: Header, config: PretrainedConfig) -> None:
    """Refuse settings of the architecture that transformers passes over, unless the config agrees
    with them anyway.
    """
    from transformers.modeling_gguf_pytorch_utils import GGUF_TO_TRANSFORMERS_MAPPING

    known = GGUF_TO_TRANSFORMERS_MAPPING["config"]
    read = known.get(header.architecture) or known.get(config.model_type) or {}
    prefix, agreed = header.architecture + ".", _expected(config)
    ignored = []
    for name, value in header.settings.items():
        setting = name.removeprefix(prefix)
        if setting == name or read.get(setting) is not None or setting in HARMLESS:
            continue
        wanted = agreed.get(setting, getattr(config, setting.rpartition(".")[2], None))
        same = value == wanted
        if isinstance(value, float) and isinstance(wanted, int | float):
            same = math.isclose(value, wanted, rel_tol=1e-6)  # settings are float32
        if not same:
            ignored.append(f"{name} = {value}")
    if ignored:
        raise AtlasError(
            f"{path.name} has settings that transformers does not read",
            where=str(path),
            why=f"{named(ignored)}: without them the answers would differ from the model's",
            remedy=ORIGINAL,
        )


def _expected(config: Any) -> dict[str, Any]:
    """Setting -> the value that the config stands for, where their names differ."""
    heads = getattr(config, "num_attention_heads", None) or 1
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    rotary = getattr(config, "rope_parameters", None) or {}
    return {
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.causal": True,
        "expert_count": 0,
        "expert_used_count": 0,
        "rope.dimension_count": int(head * (rotary.get("partial_rotary_factor") or 1)),
        "rope.freq_base": rotary.get("rope_theta"),
        "rope.scaling.type": "none",
        "rope.scaling.factor": 1,
    }


def _require_tensors(path: Path, header: Header, module: torch.nn.Module) -> None:
    """Refuse a file that has other numbers than the model: transformers skips unknown tensors, and
    fills missing ones with random numbers.
    """
    wanted = sum(one.numel() for one in module.parameters())
    if header.numbers == wanted:
        return
    scaling = [name for name in header.tensors if name.startswith("rope_")]
    also = f"; transformers does not read {named(scaling)}" if scaling else ""
    raise AtlasError(
        f"the tensors of {path.name} are not those of a {type(module).__name__}",
        where=str(path),
        why=f"the file has {header.numbers} numbers in {len(header.tensors)} tensors, the "
        f"architecture {wanted}{also}",
        remedy=ORIGINAL,
    )


def _weights(path: Path, config: PretrainedConfig, model_class: Any) -> torch.nn.Module:
    import torch
    import transformers

    what = f"the weights of {path.name} cannot be read"
    # Other files beside this one, such as an adapter's, are not looked for in an empty folder.
    with TemporaryDirectory() as empty, explained(what, path, ORIGINAL):
        module, info = model_class.from_pretrained(
            empty,
            gguf_file=str(path.absolute()),
            config=config,
            quantization_config=transformers.GgufConfig(dequantize=True),
            attn_implementation=attention_of(model_class),
            dtype=torch.float32,
            output_loading_info=True,
            **LOCAL,
        )
        for fault in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if found := sorted(map(str, info[fault])):
                raise ValueError(f"{fault.replace('_', ' ')}: {named(found)}")
    return module


def _tokenizer(path: Path, header: Header) -> tuple[Any, list[tuple[str, str]]]:
    """The tokenizer of a file, or None with a note."""
    import transformers

    if header.settings.get("tokenizer.ggml.model", "none") == "none":
        return None, []
    try:
        return transformers.AutoTokenizer.from_pretrained(
            str(path.parent), gguf_file=str(path.absolute()), **LOCAL
        ), []
    except Exception as error:  # ids need no tokenizer
        return None, [
            (
                f"the tokenizer of {path.name} is not read",
                f"  why: {first_line(error)}\n  what to do: give token ids instead of texts",
            )
        ]
