"""Loading of pretrained models. Nothing in a model's files is executed, and nothing is fetched.

A model is a HuggingFace directory (or the name of one in the local HuggingFace cache), a directory
with only a `config.json`, a `.pt2` archive of `torch.export`, or a `.pt` file.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.module import Module
from atlasc.loading.configs import SAVE_REMEDY, read_config, read_object
from atlasc.loading.exported import Shape, load_exported_program
from atlasc.loading.huggingface import (
    build,
    check_complete,
    check_fits,
    check_weights_file,
    load_weights,
    quiet_transformers,
)
from atlasc.loading.tokenizers import load_tokenizer
from atlasc.loading.torch_files import load_pt

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

FAMILIES = {
    "bert": ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet"),
    "vit": ("vit", "deit"),
    "llama": ("llama", "mistral", "qwen2"),
}


_GENERAL_NAME = re.compile(r"\W*|models?|pytorch_model|snapshots?|[0-9a-f]{40}", re.IGNORECASE)


@dataclass
class LoadedModel:
    """A model in evaluation mode and what is known about it.

    Attributes:
        module: the torch module; on the `meta` device when `has_weights` is false.
        kind: "bert", "vit" or "llama" for these families, else the config's model type, or
            "exported" for an archive and "module" for a module without a config.
        config: the HuggingFace config, if there is one.
        source: the directory or file that it was read from.
        has_weights: false for a bare config.
        exported: the program of a `.pt2` archive.
        shapes: of an archive, or of the client of a bundle: its inputs, the private one first, and
            their shapes, None where any shape or extent fits.
        kept: keeps the temporary directory of a model that was not read from files.
    """

    module: torch.nn.Module
    kind: str
    config: PretrainedConfig | None
    source: Path
    has_weights: bool = True
    exported: ExportedProgram | None = None
    shapes: dict[str, Shape | None] | None = None
    kept: TemporaryDirectory[str] | None = None

    @property
    def name(self) -> str:
        """The model's own name: that of its folder or file, or of a folder above it where the name
        is a general one (``model``, a commit of the HuggingFace cache)."""
        path = self.source.absolute()
        first = path.name if path.is_dir() else path.stem
        for part in (first, *reversed(path.parent.parts[-3:])):
            own = part.rpartition("--")[2] if part.startswith("models--") else part
            if not _GENERAL_NAME.fullmatch(own):
                return own
        return "model"

    @property
    def directory(self) -> Path:
        """Where tokenizer and preprocessor files are looked for."""
        return self.source if self.source.is_dir() else self.source.parent

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that data supply, the private one first."""
        if self.shapes is not None:
            return tuple(self.shapes)
        main = getattr(self.module, "main_input_name", None)
        if main is not None:
            return (main, "attention_mask") if main == "input_ids" else (main,)
        parameters = inspect.signature(self.module.forward).parameters
        return tuple(
            name
            for name, one in parameters.items()
            if (one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))
            or name == "attention_mask"
        )

    def exported_shape(self, name: str) -> Shape | None:
        """The only shape that an input may have; None where others fit."""
        return (self.shapes or {}).get(name)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer beside the model, loaded at first use; see `load_tokenizer`."""
        return load_tokenizer(self.directory)


def load_model(
    reference: str | Path,
    *,
    trust_pickle: bool = False,
    weights: bool = True,
) -> LoadedModel:
    """Load a model in float32 on the CPU, without running code from its files.

    Args:
        reference: a HuggingFace directory, a name in the local HuggingFace cache, a `.pt2`
            archive, or a `.pt` file.
        trust_pickle: unpickle a `.pt` file even though that can run any code.
        weights: false builds the architecture from `config.json` alone, on the `meta` device,
            without memory for the weights.

    Raises:
        AtlasError: whatever is wrong with the reference or its files, in one message.
    """
    path = Path(reference).expanduser()
    if path.suffix == ".pt2" and not path.is_dir():
        program, module, shapes = load_exported_program(_existing(path))
        return LoadedModel(module, "exported", None, path, exported=program, shapes=shapes)
    if path.suffix in (".pt", ".pth", ".bin") and not path.is_dir():
        return _load_torch_file(_existing(path), trust_pickle)
    directory = _model_directory(reference, path)
    with quiet_transformers():
        config, model_class = read_config(directory)
        if weights:
            module = load_weights(directory, config, model_class)
        else:
            module = build(config, model_class, meta=True)
    return LoadedModel(
        module.eval(), model_kind(config), module.config, directory, has_weights=weights
    )


def client_model(embed: Module, folder: Path) -> LoadedModel:
    """The model as the client of a bundle knows it: how to read inputs, without weights or torch.

    Args:
        embed: nn module from raw inputs to the tensors that are encrypted.
        folder: config, tokenizer and preprocessor of the original model; the config is missing
            where that was an archive of torch.export.

    Raises:
        AtlasError: the config is no JSON object.
    """
    path = folder / "config.json"
    config: Any = SimpleNamespace(**(read_object(path, links=False) if path.exists() else {}))
    shapes: dict[str, Shape | None] = {
        op.attributes["name"]: (None, *op.attributes["shape"][1:]) for op in embed.inputs
    }
    if tuple(shapes) == ("input_ids",):  # lengths of texts are checked where they are padded
        shapes = {"input_ids": None, "attention_mask": None}
    return LoadedModel(None, "client", config, folder, False, shapes=shapes)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise AtlasError(
            f"model file {path} does not exist", remedy="check the path for a misspelling"
        )
    return path


def _model_directory(reference: str | Path, path: Path) -> Path:
    """The directory of a reference; a name is looked up in the local cache and never fetched."""
    if path.is_dir():
        if not any(path.iterdir()):
            raise AtlasError(
                f"model directory {path} is empty",
                remedy=f"copy a HuggingFace model there, or {SAVE_REMEDY}",
            )
        if not (path / "config.json").is_file():
            raise AtlasError(
                f"model directory {path} has no config.json",
                why="it names the architecture",
                remedy=SAVE_REMEDY,
            )
        return path
    if path.exists():
        raise AtlasError(
            f"{path} is not a model",
            remedy="give a HuggingFace directory, a .pt2 archive or a .pt file",
        )
    name = str(reference)
    if not path.is_absolute() and not name.startswith((".", "~")) and name.count("/") <= 1:
        with quiet_transformers():
            from huggingface_hub import try_to_load_from_cache
            from huggingface_hub.errors import HFValidationError

            try:
                cached = try_to_load_from_cache(name, "config.json")
            except HFValidationError:
                cached = None
        if isinstance(cached, str):
            return Path(cached).parent
    raise AtlasError(
        f"model {name} not found",
        why="there is no such directory or file, and no model of that name in the local "
        "HuggingFace cache; atlasc never downloads",
        remedy=f"check the path, or fetch it first: hf download {name}",
    )


def _load_torch_file(path: Path, trust_pickle: bool) -> LoadedModel:
    """A `.pt` file: a state dictionary with a config.json beside it, or a trusted pickle."""
    import torch

    content = load_pt(path, trust_pickle=trust_pickle)
    if isinstance(content, torch.nn.Module):
        config = getattr(content, "config", None)
        return LoadedModel(content.float().eval(), model_kind(config), config, path)
    if not (path.parent / "config.json").is_file():
        raise AtlasError(
            f"{path.name} holds tensors but no architecture",
            where=str(path),
            why="there is no config.json beside it",
            remedy=SAVE_REMEDY,
        )
    with quiet_transformers():
        config, model_class = read_config(path.parent)
        bare = build(config, model_class, meta=True)
    check_fits(bare, check_weights_file(path), path)
    expected = bare.state_dict()
    wrong = [
        (name, tuple(content[name].shape), tuple(tensor.shape))
        for name, tensor in expected.items()
        if name in content and content[name].shape != tensor.shape
    ]
    check_complete(path, sorted(set(expected) - set(content)), wrong)
    with quiet_transformers():
        module = build(config, model_class, meta=False)
    with explained(f"{path.name} has tensors of another kind", path):
        module.load_state_dict(content, strict=False)
    return LoadedModel(module.eval(), model_kind(config), module.config, path)


def model_kind(config: Any) -> str:
    """The family of a model, see `LoadedModel`."""
    if config is None:
        return "module"
    kind = str(config.model_type)
    return next((name for name, members in FAMILIES.items() if kind in members), kind)
