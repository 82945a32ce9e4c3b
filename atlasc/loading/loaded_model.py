"""A model that was loaded, or that a client knows by its bundle: inputs, sizes, tokenizer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS, MASK, SEGMENTS, Padding
from atlasc.loading.bounded_tokenizer import BoundedTokenizer
from atlasc.loading.model_files.huggingface import (
    SAVE_REMEDY,
    has_tokenizer,
    load_tokenizer,
    read_as_sentences,
    tokenizer_errors,
)
from atlasc.loading.model_files.sentence import Sentences
from atlasc.loading.model_files.wrappers import named_inputs
from atlasc.loading.texts.chat import ChatMessage
from atlasc.loading.texts.tokenizer import ProgramTokenizer

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

    from atlasc.loading.mask_argument import OwnMask

Shape = tuple[int | None, ...]
"""Shape of an input; None at an axis of any length."""
CLIENT = "client"
"""The kind of a model as the client of a bundle knows it."""
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

    def tokenize_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a conversation, of the model as a client knows it.

        Raises:
            AtlasError: there is no tokenizer or no chat template; the template refuses the
                messages; or the tokenizer fails.
        """
        if not isinstance(self.tokenizer, BoundedTokenizer):
            raise self._no_tokenizer()
        return self.tokenizer.chat_ids(messages)

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
            raise self._no_tokenizer()
        cut: dict[str, Any] = {"truncation": False}
        if length is not None:
            cut = {"truncation": "longest_first", "max_length": length}
        pairs = () if seconds is None else (list(seconds),)
        with tokenizer_errors(self.directory):
            encoded = tokenizer(list(texts), *pairs, verbose=False, **cut)
            return {name: list(encoded[name]) for name in (IDS, SEGMENTS) if name in encoded}

    def _no_tokenizer(self) -> AtlasError:
        return AtlasError(
            "the model has no tokenizer",
            where=str(self.directory),
            remedy="put tokenizer.json beside config.json, give a module with its tokenizer, "
            'or give ids: {"input_ids": [...]}',
        )


def _size(name: str, value: Any) -> int | None:
    if value is None or (type(value) is int and 0 < value <= 1 << 25):
        return value
    raise AtlasError(f"{name} of config.json is {value!r}, not a size", remedy=SAVE_REMEDY)
