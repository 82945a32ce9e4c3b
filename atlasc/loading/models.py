"""Loading of pretrained models. Nothing in a model's files is executed, and nothing is fetched.

A model is a HuggingFace directory (or the name of one in the local HuggingFace cache), a directory
with only a `config.json`, a `.gguf` file, a `.pt2` archive of `torch.export`, or a `.pt` file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS, MASK, SEGMENTS, Padding
from atlasc.loading.bounded_tokenizer import BoundedTokenizer
from atlasc.loading.model_files.adapters import check_adapter
from atlasc.loading.model_files.directories import GGUF, ONNX, gguf_file, model_directory
from atlasc.loading.model_files.gguf_files import load_gguf
from atlasc.loading.model_files.huggingface import (
    SAVE_REMEDY,
    build,
    has_tokenizer,
    load_tokenizer,
    quiet_transformers,
    read_as_sentences,
    read_config,
    tokenizer_errors,
)
from atlasc.loading.model_files.parts import as_its_folder_says, encoder_of
from atlasc.loading.model_files.saved import saved_parts
from atlasc.loading.model_files.sentence import Sentences
from atlasc.loading.model_files.torch_files import Shape, load_exported_program, load_pt
from atlasc.loading.model_files.weights import load_weights
from atlasc.loading.model_files.wrappers import named_inputs, unwrapped
from atlasc.loading.texts.tokenizer import ProgramTokenizer

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from atlasc.loading.mask_argument import OwnMask

FAMILIES = {
    "bert": ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet"),
    "vit": ("vit", "deit"),
    "llama": ("llama", "mistral", "qwen2"),
}
CLIENT = "client"
"""The kind of a model as the client of a bundle knows it."""
Note = Callable[[str, str], object]
_GENERAL_NAME = re.compile(r"\W*|models?|pytorch_model|snapshots?|[0-9a-f]{40}", re.IGNORECASE)
_TEMPORARY = re.compile(r"te?mp|tmp[a-z0-9_]{8}|tmp\.\w+|atlasc-model-\w+")
"""Names of folders that hold a model for a while: those of Python's tempfile, and of mktemp."""


@dataclass
class LoadedModel:
    """A model in evaluation mode, with the known facts about it.

    Attributes:
        module: the torch module; on the `meta` device if it was built without weights.
        kind: "bert", "vit" or "llama" for these families; otherwise the config's model type, or
            "exported" for an archive and "module" for a module without a config.
        config: the HuggingFace config, if there is one.
        source: the directory or file that the model was read from.
        exported: the program of a `.pt2` archive.
        shapes: input name -> shape, the private input first, for an archive or the client of a
            bundle; None instead of a shape or a size that is free. Empty for other models.
        kept: keeps the temporary directory of a model that was not read from files.
        notes: what of the files is not read or computed, as pairs of a headline and details.
        sentences: what a folder of sentence-transformers says beside its Transformer.
        given: the module that the user gave, if ``module`` was made of it.
        padding: the ids and that of padding, where the model computes its mask from the ids.
        mask: the mask that clients may give under the model's own name; None for ``attention_mask``
            alone.
    """

    module: torch.nn.Module
    kind: str
    config: PretrainedConfig | None
    source: Path
    exported: ExportedProgram | None = None
    shapes: dict[str, Shape | None] = field(default_factory=dict)
    kept: TemporaryDirectory[str] | None = None
    notes: tuple[tuple[str, str], ...] = ()
    sentences: Sentences | None = None
    given: torch.nn.Module | None = None
    padding: Padding | None = None
    mask: OwnMask | None = None

    @property
    def name(self) -> str:
        """The model's own name: that of its folder or file. If this name is a general one
        (``model``, a commit of the HuggingFace cache), the name of a folder above it. In a
        temporary folder the name is that of the model's class."""
        path = self.source.absolute()
        first = path.name if path.is_dir() else path.stem
        for part in (first, *reversed(path.parent.parts[-3:])):
            own = part.rpartition("--")[2] if part.startswith("models--") else part
            if _TEMPORARY.fullmatch(own):
                return "model" if self.config is None else type(self.module).__name__
            if not _GENERAL_NAME.fullmatch(own):
                return own
        return "model"

    @property
    def is_client(self) -> bool:
        """Whether it is the model as the client of a bundle knows it."""
        return self.kind == CLIENT

    @property
    def directory(self) -> Path:
        """The directory of the tokenizer and preprocessor files."""
        return self.source if self.source.is_dir() else self.source.parent

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs that data must supply, the private input first."""
        if self.shapes:
            return tuple(self.shapes)
        main = getattr(self.module, "main_input_name", None)
        if main is not None:
            more = (MASK, SEGMENTS) if self.has_segments else (MASK,)
            return (main, *more) if main == IDS else (main,)
        names = tuple(
            name
            for name, one in named_inputs(self.module).items()
            if one.default is one.empty or name == MASK
        )
        if not names:
            raise AtlasError(
                f"{type(self.module).__name__} does not name its inputs",
                why="its forward takes any arguments, or none",
                remedy="give the wrapped module, or a module whose forward names each input; "
                "modules of torch.jit are not supported",
            )
        return names

    @property
    def optional_names(self) -> tuple[str, ...]:
        """Names of further inputs, which data may supply.

        For a HuggingFace model these are the inputs with one number per token; for another module,
        all inputs that are None by default.
        """
        if self.shapes:
            return ()
        own = getattr(self.module, "main_input_name", None) is None
        return tuple(
            name
            for name, one in named_inputs(self.module).items()
            if name not in self.input_names and one.default is None
            if own or (name.endswith("_ids") and not name.startswith("decoder_"))
        )

    @property
    def has_segments(self) -> bool:
        """Whether the model distinguishes the two texts of a pair, by `token_type_ids`."""
        segments = getattr(self.config, "type_vocab_size", None)
        return type(segments) is int and segments > 1 and SEGMENTS in named_inputs(self.module)

    def size(self, name: str) -> int | None:
        """A size from the config, or None; raises AtlasError if it is not a positive integer."""
        return _size(name, getattr(self.config, name, None))

    @property
    def image_shape(self) -> Shape:
        """(channels, height, width); None if the model accepts any.

        Raises AtlasError if the config has something else in their place.
        """
        exported = self.shapes.get("pixel_values")
        if exported is not None and len(exported) == 4:
            return exported[1:]
        extents: Any = getattr(self.config, "image_size", None)
        pair = isinstance(extents, (list, tuple)) and len(extents) == 2
        height, width = extents if pair else (extents, extents)
        return self.size("num_channels"), _size("image_size", height), _size("image_size", width)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase | ProgramTokenizer | BoundedTokenizer | None:
        """The tokenizer beside the model, loaded at first use; see `load_tokenizer`. That of a
        bundle has bounds.
        """
        if self.is_client:
            return BoundedTokenizer(self.directory) if has_tokenizer(self.directory) else None
        found = load_tokenizer(self.directory)
        if found is not None and self.sentences is not None:
            return read_as_sentences(found, self.sentences)
        return found

    @property
    def most_tokens(self) -> int | None:
        """Tokens of a text that sentence-transformers reads; None for folders of others."""
        if self.sentences is None:
            return None
        most = getattr(self.tokenizer, "model_max_length", None)
        return most if type(most) is int and 0 < most < 1 << 25 else None

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts. Raises AtlasError if the model has no tokenizer, or the tokenizer
        fails.
        """
        return self.encode(texts)[IDS]

    def encode(
        self, texts: Sequence[str], seconds: Sequence[str] | None = None, length: int | None = None
    ) -> dict[str, list[list[int]]]:
        """Token ids of texts, and segments if the tokenizer makes them.

        Args:
            texts: the texts; of pairs, the first texts.
            seconds: the second texts of pairs.
            length: longer pairs lose tokens of their longer text.

        Raises:
            AtlasError: the model has no tokenizer, or the tokenizer fails.
        """
        tokenizer = self.tokenizer
        if tokenizer is None:
            raise AtlasError(
                "the model has no tokenizer",
                where=str(self.directory),
                remedy="put tokenizer.json beside config.json, give a module with its tokenizer, "
                'or give ids: {"input_ids": [...]}',
            )
        cut: dict[str, Any] = {"truncation": False}
        if length is not None:
            cut = {"truncation": "longest_first", "max_length": length}
        pairs = () if seconds is None else (list(seconds),)
        with tokenizer_errors(self.directory):
            encoded = tokenizer(list(texts), *pairs, verbose=False, **cut)
            return {name: list(encoded[name]) for name in (IDS, SEGMENTS) if name in encoded}


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
    kept, folder = saved_parts(Path(known).name or type(module).__name__, parts)
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


def _size(name: str, value: Any) -> int | None:
    if value is None or (type(value) is int and 0 < value <= 1 << 25):
        return value
    raise AtlasError(f"{name} of config.json is {value!r}, not a size", remedy=SAVE_REMEDY)
