"""Weights of a HuggingFace model, from its directory or from a `.pt` file."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from atlasc.ir.errors import AtlasError, explained, first_line, named
from atlasc.ir.files import MAX_HEADER, MAX_WEIGHTS, MIB, open_plain, read_json
from atlasc.loading.model_files.adapters import without_adapter
from atlasc.loading.model_files.directories import WEIGHTS
from atlasc.loading.model_files.half import half_tensors, halves_kept
from atlasc.loading.model_files.huggingface import (
    LOCAL,
    attention_of,
    build,
    contradictory_labels,
    labels_note,
    read_object,
)
from atlasc.loading.model_files.torch_files import check_records
from atlasc.loading.model_files.unread import require_read

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

MAX_INDEX = 64 * MIB
SLACK = 1 << 26
"""Numbers of a model that its weight files leave out: masks, positions."""


WRAPPERS = {
    "module.": "DataParallel or DistributedDataParallel",
    "_orig_mod.": "torch.compile",
    "model.": "a module of the training, such as Lightning's,",
}
"""What stands before the names of weights -> who puts it there."""


class _WeightsIndex(BaseModel):
    weight_map: dict[str, str]


def load_weights(
    source: Path,
    config: PretrainedConfig,
    model_class: Any,
    tensors: dict[str, torch.Tensor] | None = None,
) -> tuple[torch.nn.Module, list[tuple[str, str]]]:
    """The architecture with the weights of a directory, or with the tensors of a `.pt` file.

    Returns the module, and notes on the parts of the files that are not read. Raises AtlasError if
    weights are missing, damaged, of another size than in the config, or unread although they would
    change answers.
    """
    files = _weights_files(source) if tensors is None else [source]
    size = sum(_check_weights_file(file) for file in files)
    bare = build(config, model_class, meta=True)
    wanted = sum(tensor.numel() for tensor in (*bare.parameters(), *bare.buffers()))
    if wanted > 2 * size + SLACK:
        raise AtlasError(
            "config.json describes a larger model than its weights",
            where=str(source),
            why=f"the config asks for {wanted} numbers, but the files have {size} bytes",
            remedy="use the config.json that was saved with these weights",
        )
    safe = all(file.suffix == ".safetensors" for file in files)
    if tensors is not None:
        tensors = halves_kept(tensors)
    elif safe:
        tensors = half_tensors(files)
    read = partial(_read_weights, source, config, model_class, tensors, safe)
    module, info = read()
    notes = []
    directory = source if source.is_dir() else source.parent
    counts = contradictory_labels(read_object(directory / "config.json"))
    if counts:
        if info["mismatched_keys"]:
            config.num_labels = counts[1]
            module, info = read()
        notes.append(labels_note(directory, counts, config.num_labels))
    # Sentence encoders are often saved without the pooler that their base class has by default.
    missing = sorted(info["missing_keys"])
    if missing and all(name.startswith("pooler.") for name in missing):
        module, info = read(add_pooling_layer=False)
        missing = sorted(info["missing_keys"])
    if info["mismatched_keys"]:
        name, found, expected = sorted(info["mismatched_keys"])[0]
        raise AtlasError(
            f"{len(info['mismatched_keys'])} weights do not have the size that config.json implies",
            where=f"{source}: {name}",
            why=f"the file has {tuple(found)}, the config asks for {tuple(expected)}",
            remedy="use the config.json that was saved with these weights",
        )
    if prefix := _prefix(info["unexpected_keys"], missing):
        raise AtlasError(
            f"the names of the weights begin with {prefix}, which those of the model do not",
            where=str(source),
            why=f"{WRAPPERS.get(prefix, 'a module around the model')} puts this before each name: "
            f"the file has {prefix}{missing[0]} for {missing[0]}",
            remedy=f"save the model inside, or rename: {{n.removeprefix({prefix!r}): w for n, w in "
            "weights.items()}",
        )
    if missing:
        raise AtlasError(
            f"{len(missing)} weights of the architecture are missing",
            where=str(source),
            why=named(missing),
            remedy="use a checkpoint that was trained for this task, or load its base model",
        )
    _require_tied(module, source)
    return module, notes + require_read(info["unexpected_keys"], module, config, source)


def _prefix(unread: Iterable[str], missing: Sequence[str]) -> str:
    """What stands before the names of most missing weights in the file; empty if nothing does."""
    wanted = set(missing)
    ends = [(name, at + 1) for name in unread for at, c in enumerate(name) if c == "."]
    found = Counter(name[:end] for name, end in ends if name[end:] in wanted)
    prefix, count = found.most_common(1)[0] if found else ("", 0)
    return prefix if 2 * count > len(missing) else ""


def _require_tied(module: torch.nn.Module, source: Path) -> None:
    """Refuse weights that differ where the config ties them: transformers then takes both, with a
    warning in its log.
    """
    import torch

    for name, other in module.get_expanded_tied_weights_keys(all_submodels=True).items():
        one, same = module.get_parameter(name), module.get_parameter(other)
        if one is not same and not torch.equal(one, same):
            raise AtlasError(
                "config.json ties two weights that differ",
                where=f"{source}: {name}",
                why=f"tie_word_embeddings says that {name} is {other}, but the file has another",
                remedy="use the config.json that was saved with these weights; if both weights are "
                'meant, write "tie_word_embeddings": false into it',
            )


def _read_weights(
    source: Path,
    config: PretrainedConfig,
    model_class: Any,
    tensors: dict[str, torch.Tensor] | None,
    safe: bool,
    **extra: Any,
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The module, and the names of weights that are missing, unexpected, or of another size."""
    import torch
    import transformers

    remedy = "copy the files again; a .bin file must hold only tensors"
    what = "the model's weights cannot be read"
    with explained(what, source, remedy), without_adapter(source) as place:
        module, info = model_class.from_pretrained(
            None if tensors else str(place),
            config=config,
            # That of the folder is read elsewhere, and its faults are none of the weights.
            generation_config=transformers.GenerationConfig(),
            state_dict=tensors,
            attn_implementation=attention_of(model_class),
            dtype=torch.float32,
            use_safetensors=safe,
            weights_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **LOCAL,
            **extra,
        )
    return module, info


def _weights_files(directory: Path) -> list[Path]:
    """The files of weights; raises AtlasError if a file lies in another folder or there is none."""
    found = next((directory / name for name in WEIGHTS if (directory / name).is_file()), None)
    if found is None:
        raise AtlasError(
            f"model directory {directory} has no weights",
            why="neither model.safetensors nor pytorch_model.bin is there",
            remedy="only `depth` and `inspect` work on a bare config; add the weights for the rest",
        )
    if found.suffix != ".json":
        return [found]
    index = read_json(found, _WeightsIndex, "weights index", MAX_INDEX)
    names = sorted(set(index.weight_map.values()))
    for name in names:
        if Path(name).name != name or not name.isprintable():
            raise AtlasError(
                f"weights index {found.name} names {name}, which is not in its folder",
                where=str(found),
                remedy="copy or download the index again",
            )
    return [directory / name for name in names]


def _check_weights_file(path: Path) -> int:
    """Size in bytes of a file of weights; raises AtlasError if it is missing or damaged."""
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
            remedy="copy or download the file again",
        ) from error
    return size
