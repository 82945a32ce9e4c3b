"""Loading of pretrained models. Nothing in a model's files is executed, and nothing is fetched.

A model is a HuggingFace directory (or the name of one in the local HuggingFace cache), a directory
with only a `config.json`, a `.gguf` file, a `.pt2` archive of `torch.export`, or a `.pt` file.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.folder import unapplied
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.model_files.adapters import check_adapter
from atlasc.loading.model_files.directories import GGUF, ONNX, gguf_file, model_directory
from atlasc.loading.model_files.gguf_files import load_gguf
from atlasc.loading.model_files.huggingface import (
    SAVE_REMEDY,
    build,
    quiet_transformers,
    read_config,
)
from atlasc.loading.model_files.members import note_of
from atlasc.loading.model_files.parts import as_its_folder_says, encoder_of
from atlasc.loading.model_files.saved import saved_parts
from atlasc.loading.model_files.torch_files import load_exported_program, load_pt
from atlasc.loading.model_files.weights import load_weights
from atlasc.loading.model_files.wrappers import unwrapped

if TYPE_CHECKING:
    import torch


FAMILIES = {
    "bert": ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet"),
    "vit": ("vit", "deit"),
    "llama": ("llama", "mistral", "qwen2"),
}
Note = Callable[[str, str], object]


def model_of(
    model: str | Path | torch.nn.Module | LoadedModel,
    tokenizer: Any = None,
    *,
    processor: Any = None,
    trust_pickle: bool = False,
    note: Note = lambda headline, details: None,
) -> LoadedModel:
    """A model from any source: a file, a directory, or a module in memory.

    A module keeps its mode, its type and its device; a module that is not in float32 on the CPU is
    copied. Its config, tokenizer and processor are written to a temporary folder, which serves as
    the directory of the model. So they are read with the same limits as files, and a bundle gets
    the files that its clients will read.

    Args:
        model: see `load_model`, or a module.
        tokenizer, processor: HuggingFace objects with ``save_pretrained``; only for a module in
            memory. The processor of a model that reads images or recordings is its image
            processor or feature extractor, or a whole processor that has one.
        trust_pickle: see `load_model`.
        note: called when a wrapper is replaced by the model inside.

    Raises:
        AtlasError: as `load_model`; ``model`` is no model; or a tokenizer or processor cannot be
            saved, or is given although the model is read from files.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        if tokenizer is not None or processor is not None:
            what = "tokenizer" if processor is None else "processor"
            raise AtlasError(
                f"a {what} can only be given for a module in memory",
                why="the directory of a model has its own in a file",
                remedy=f"leave the {what} out, or load the module and give it instead of the "
                "directory",
            )
        if isinstance(model, LoadedModel):
            return model
        if isinstance(model, str | Path):
            return load_model(model, trust_pickle=trust_pickle, note=note)
        raise AtlasError(
            f"a {type(model).__name__} is not a model",
            remedy="give a torch.nn.Module, or the path of a HuggingFace directory, a .gguf, a "
            ".pt2 or a .pt",
        )
    model, left = encoder_of(unwrapped(model, note))
    tensors = (*model.parameters(), *model.buffers())
    meta = any(tensor.is_meta for tensor in tensors)
    plain = all(
        t.device.type == "cpu" and (t.dtype == torch.float32 or not t.is_floating_point())
        for t in tensors
    )
    module = model if meta or plain else deepcopy(model).to("cpu", torch.float32)
    config: Any = getattr(module, "config", None)
    config = config if hasattr(config, "save_pretrained") else None
    known = str(getattr(config, "name_or_path", "") or "").rstrip("/")
    parts = {"config": config, "tokenizer": tokenizer, "processor": processor}
    kept, folder = saved_parts(Path(known).name or type(module).__name__, parts, module)
    left += note_of([*unapplied(folder)])
    facts: dict[str, Any] = {"kept": kept, "notes": tuple(left), "given": model}
    return LoadedModel(module, _kind(config), config, folder, **facts)


def load_model(
    reference: str | Path,
    *,
    trust_pickle: bool = False,
    weights: bool = True,
    note: Note = lambda headline, details: None,
) -> LoadedModel:
    """Load a model in float32 on the CPU, without running code from its files.

    Args:
        reference: a HuggingFace directory, a name in the local HuggingFace cache, a `.gguf` file
            or a folder with one, a `.pt2` archive, or a `.pt` file: a state dictionary with a
            config.json beside it, or a trusted pickle.
        trust_pickle: unpickle a `.pt` file, although this can run any code.
        weights: False builds the architecture from `config.json`, or from the header of a `.gguf`
            file, on the `meta` device, without memory for the weights.
        note: called with notes on files of the model that are not read.

    Raises:
        AtlasError: the reference or its files are wrong.
    """
    import torch

    path = Path(reference).expanduser()
    suffix = "" if path.is_dir() else path.suffix
    is_pickle = suffix in (".pt", ".pth", ".bin")
    if (is_pickle or suffix in (".pt2", GGUF, ONNX)) and not path.is_file():
        raise AtlasError(
            f"model file {path} does not exist", remedy="check the path for a misspelling"
        )
    if suffix == ".pt2":
        program, module, shapes = load_exported_program(path)
        return LoadedModel(module, "exported", None, path, exported=program, shapes=shapes)
    if (gguf := gguf_file(path)) is not None:
        whole, folder, kept, notes = load_gguf(gguf, weights=weights)
        part, left = encoder_of(whole)
        kind = _kind(whole.config)
        notes += left
        return LoadedModel(part.eval(), kind, whole.config, folder, kept=kept, notes=tuple(notes))
    tensors = load_pt(path, trust_pickle=trust_pickle) if is_pickle else None
    if isinstance(tensors, torch.nn.Module):
        config: Any = getattr(tensors, "config", None)
        return LoadedModel(tensors.float().eval(), _kind(config), config, path)
    source = path if is_pickle else model_directory(reference, path)
    directory = path.parent if is_pickle else source
    if is_pickle and not (directory / "config.json").is_file():
        raise AtlasError(
            f"{path.name} holds tensors but no architecture",
            where=str(path),
            why="there is no config.json beside it",
            remedy=SAVE_REMEDY,
        )
    check_adapter(directory, note)
    with quiet_transformers():
        config, model_class = read_config(directory)
        if weights:
            module, notes = load_weights(source, config, model_class, tensors)
        else:
            module, notes = build(config, model_class, meta=True), []
    part, left, sentences = as_its_folder_says(module, config, directory, weights=weights)
    notes += left
    return LoadedModel(
        part.eval(), _kind(config), module.config, source, notes=tuple(notes), sentences=sentences
    )


def _kind(config: Any) -> str:
    """The family of a model, see `LoadedModel`."""
    if config is None:
        return "module"
    kind = str(config.model_type)
    return next((name for name, members in FAMILIES.items() if kind in members), kind)
