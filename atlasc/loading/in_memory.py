"""Models and data that are Python objects: as good as a directory and files.

The config, the tokenizer and the image processor of a module are written into a temporary folder,
which stands for the directory of the model. So they are read with the same code and the same limits
as those of a directory, and a bundle gets the files that its clients will read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.loading.data import inputs_from_arrays, load_inputs
from atlasc.loading.huggingface import quiet_transformers
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import LoadedModel, load_model, model_kind
from atlasc.loading.texts import inputs_from_rows

if TYPE_CHECKING:
    import torch


def model_of(
    model: str | Path | torch.nn.Module | LoadedModel,
    tokenizer: Any = None,
    image_processor: Any = None,
    *,
    name: str = "",
    trust_pickle: bool = False,
) -> LoadedModel:
    """A model from whatever the caller has: a file, a directory, or a module in memory.

    A module keeps its mode, its type and its device: one that is not in float32 on the CPU is
    copied.

    Args:
        model: see :func:`atlasc.loading.models.load_model`, or a module.
        tokenizer, image_processor: of HuggingFace, with ``save_pretrained``; for a module only.
        name: of a module; by default that of its config, or of its class.
        trust_pickle: see :func:`atlasc.loading.models.load_model`.

    Raises:
        AtlasError: as ``load_model``; it is no model; a tokenizer or an image processor cannot be
            saved, or is given beside files.
    """
    import torch

    if isinstance(model, torch.nn.Module):
        return _from_module(model, tokenizer, image_processor, name)
    if tokenizer is not None or image_processor is not None:
        raise AtlasError(
            "a tokenizer and an image processor are taken for a module in memory only",
            why="those of a directory are files in it",
            remedy="leave them out, or load the module and give it instead of the directory",
        )
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, str | Path):
        return load_model(model, trust_pickle=trust_pickle)
    raise AtlasError(
        f"a {type(model).__name__} is not a model",
        remedy="give a torch.nn.Module, or the path of a HuggingFace directory, a .pt2 or a .pt",
    )


def _from_module(module: Any, tokenizer: Any, image_processor: Any, name: str) -> LoadedModel:
    import torch

    tensors = (*module.parameters(), *module.buffers())
    meta = any(tensor.is_meta for tensor in tensors)
    plain = (t.dtype == torch.float32 or not t.is_floating_point() for t in tensors)
    if not meta and not (all(plain) and all(t.device.type == "cpu" for t in tensors)):
        module = deepcopy(module).to("cpu", torch.float32)
    config = getattr(module, "config", None)
    config = config if hasattr(config, "save_pretrained") else None
    known = str(getattr(config, "name_or_path", "") or "").rstrip("/")
    name = name or Path(known).name or type(module).__name__
    kept = TemporaryDirectory(prefix="atlasc-model-")
    folder = Path(kept.name) / (re.sub(r"[^\w-]+", "_", name, flags=re.ASCII) or "model")
    folder.mkdir()
    parts = {"config": config, "tokenizer": tokenizer, "image processor": image_processor}
    for what, part in parts.items():
        if part is None:
            continue
        remedy = f"give the {what} of a HuggingFace model, which has save_pretrained"
        whole = f"the {what} cannot be saved for the clients of the program"
        with explained(whole, remedy=remedy), quiet_transformers():
            part.save_pretrained(str(folder))
    return LoadedModel(module, model_kind(config), config, folder, not meta, kept=kept)


def inputs_of(
    data: object,
    model: LoadedModel,
    sequence_length: int | None = None,
    *,
    labels: Sequence[int] | np.ndarray | None = None,
) -> Inputs:
    """Inputs from whatever the caller has.

    Args:
        data: a path, see :func:`atlasc.loading.data.load_inputs`; a sequence of texts, of lists of
            token ids, or of mappings like the lines of a .jsonl file; an array or a tensor of the
            model's main input; a mapping of the model's inputs to arrays or tensors; or
            :class:`Inputs`.
        model: see ``load_inputs``.
        sequence_length: see ``load_inputs``.
        labels: the true class of each input, where ``data`` has none.

    Raises:
        AtlasError: as ``load_inputs``; the data are none of these.
    """
    if isinstance(data, Inputs):
        return data
    if isinstance(data, str | Path):
        return load_inputs(data, model, sequence_length)
    main = model.input_names[0]
    rows = list(data) if main == "input_ids" and isinstance(data, Sequence) else []
    if rows and all(isinstance(row, str | Sequence | Mapping) for row in rows):
        return _inputs_of_rows(rows, model, sequence_length, labels)
    given = data if isinstance(data, Mapping) else {main: data}
    arrays = {str(key): _array(value) for key, value in given.items()}
    if labels is not None:
        arrays["labels"] = _array(labels)
    if main in arrays and arrays[main].dtype.kind not in "biuf":
        raise AtlasError(
            f"data is a {type(data).__name__}, from which no inputs can be made",
            why=f"the model reads {', '.join(model.input_names)}",
            remedy="give texts, arrays by the name of the input, or the path of a file",
        )
    return inputs_from_arrays(arrays, model, sequence_length, "data")


def _inputs_of_rows(rows: list[Any], model: LoadedModel, length: int | None, labels: Any) -> Inputs:
    """Texts, lists of token ids, or mappings as in a .jsonl file."""
    given: list[Mapping[str, Any]] = [
        row if isinstance(row, Mapping) else {"text" if isinstance(row, str) else "input_ids": row}
        for row in rows
    ]
    names = tuple(f"data[{row}]" for row in range(len(rows)))
    inputs = inputs_from_rows(given, names, model, length)
    if labels is None:
        return inputs
    truth = _array(labels)
    if truth.shape != (len(inputs),):
        raise AtlasError(f"labels has shape {truth.shape}, but there are {len(inputs)} inputs")
    return replace(inputs, labels=truth)


def _array(value: Any) -> np.ndarray:
    """An array, or a tensor of torch on any device."""
    with explained("data cannot be made an array"):
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
