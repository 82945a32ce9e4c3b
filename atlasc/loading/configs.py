"""config.json of a HuggingFace model: read as data, with limits on what it asks for."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files.json_text import leaves, read_json
from atlasc.ir.files.plain import MIB

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SAVE_REMEDY = "write it with model.save_pretrained(directory)"
MAX_CONFIG = 16 * MIB
LIMITS = (
    (re.compile(r"layers?$|depths?$|blocks$|stages?$"), 1_000),
    (re.compile(r"experts$"), 1 << 14),
    (re.compile(r"vocab|position|token|length|window|context"), 1 << 25),
    (re.compile(r"label|class"), 1 << 16),
    (re.compile(r"image|patch|channels|frames"), 1 << 15),
    (re.compile(r""), 1 << 20),
)
"""The greatest number of a member, by the first pattern found in the member's name."""
IDS = re.compile(r"ids?$|label2id|seed|theta")
"""Members whose numbers are no sizes."""
COUNTS = re.compile(r"^(num|n|max)_|_size$")


def read_config(directory: Path) -> tuple[PretrainedConfig, type]:
    """The config and the architecture class that it names.

    Raises:
        AtlasError: it is no JSON object, has sizes that no model has, or names an unknown model.
    """
    import transformers

    path = directory / "config.json"
    raw = read_object(path)
    if not isinstance(raw.get("model_type"), str):
        raise AtlasError(
            "config.json does not name a model_type", where=str(path), remedy=SAVE_REMEDY
        )
    if "quantization_config" in raw:
        raise AtlasError(
            "the model's weights are quantized",
            where=str(path),
            remedy="use the checkpoint in float16, bfloat16 or float32",
        )
    _check_sizes(raw, path)
    named = raw.get("architectures") or []
    names = named if isinstance(named, list) else [named]
    if raw["model_type"] not in transformers.CONFIG_MAPPING:
        raise _unknown_architecture(f"model_type {raw['model_type']!r}", path)
    with explained("config.json has values that do not make a model", path):
        config = transformers.AutoConfig.from_pretrained(
            str(directory), local_files_only=True, trust_remote_code=False
        )
    base = transformers.AutoModel._model_mapping.get(type(config), None)
    model_class = getattr(transformers, str(names[0]), None) if names else base
    is_model = isinstance(model_class, type) and issubclass(
        model_class, transformers.PreTrainedModel
    )
    if not is_model or model_class.config_class is not type(config):  # type: ignore[union-attr]
        raise _unknown_architecture(f"architecture {names[0] if names else 'none'}", path)
    return config, model_class  # type: ignore[return-value]


def read_object(path: Path, *, links: bool = True) -> dict[str, Any]:
    """The members of config.json; raises AtlasError if it is no JSON object."""
    what = "the config"
    return read_json(path, dict[str, Any], what, MAX_CONFIG, remedy=SAVE_REMEDY, links=links)


def size(config: Any, name: str) -> int | None:
    """A size from a config, or None; raises AtlasError if it is no positive integer."""
    value = getattr(config, name, None)
    if value is None or (type(value) is int and 0 < value <= 1 << 25):
        return value
    raise AtlasError(f"{name} of config.json is {value!r}, not a size", remedy=SAVE_REMEDY)


def image_size(config: Any) -> tuple[int | None, int | None]:
    """Height and width of a model's images, each as from :func:`size`."""
    value = getattr(config, "image_size", None)
    both = value if isinstance(value, (list, tuple)) and len(value) == 2 else (value, value)
    height, width = (size(SimpleNamespace(image_size=extent), "image_size") for extent in both)
    return height, width


def _check_sizes(raw: dict[str, Any], path: Path) -> None:
    for name, value in leaves(raw):
        if type(value) is not int:
            continue
        limit = next(limit for pattern, limit in LIMITS if pattern.search(name))
        if not IDS.search(name) and abs(value) > limit:
            raise AtlasError(
                f"config.json asks for more than a model has: {name} is {value}",
                where=str(path),
                why=f"it may be at most {limit}",
                remedy=SAVE_REMEDY,
            )
        if value < -1 and COUNTS.search(name):  # some models write -1 for "no limit"
            raise AtlasError(
                f"config.json has a negative size: {name} is {value}",
                where=str(path),
                remedy=SAVE_REMEDY,
            )


def _unknown_architecture(what: str, path: Path) -> AtlasError:
    return AtlasError(
        f"unknown {what}",
        where=str(path),
        why="this transformers version has no such model, and code that comes with a model is "
        "never run",
        remedy="export the model yourself: "
        "torch.export.save(torch.export.export(model, args, strict=False), 'model.pt2')",
    )
