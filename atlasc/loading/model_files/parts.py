"""The part of a model that a program computes: the encoder of an encoder-decoder, or a Transformer
with the steps of a folder of sentence-transformers after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.arrays.tensor_files import read_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS
from atlasc.loading.model_files.members import activation_of, left_out
from atlasc.loading.model_files.sentence import EMBEDDING, Sentences, Step, sentences_of
from atlasc.loading.model_files.torch_files import load_pt

if TYPE_CHECKING:
    import torch

SCORES = ("Identity", "Sigmoid", "Tanh", "LogSigmoid")
"""Classes of ``torch.nn`` that may end a CrossEncoder."""
Notes = list[tuple[str, str]]


def encoder_of(module: Any) -> tuple[torch.nn.Module, Notes]:
    """The encoder of a model that writes text with a decoder, and a note; another model as it is.

    A classifier that reads its own text with a decoder is not such a model.
    """
    if not getattr(getattr(module, "config", None), "is_encoder_decoder", False):
        return module, []
    from transformers import AutoModel

    base = AutoModel._model_mapping.get(type(module.config), None)
    whole = type(module) is base or (hasattr(module, "can_generate") and module.can_generate())
    if not whole:
        return module, []
    encoder = module.get_encoder()
    return encoder, [
        (
            f"the program computes the {type(encoder).__name__} of the {type(module).__name__}",
            "  why: the decoder writes a text token by token, and reads its own tokens\n"
            "  what to do: nothing, if you want the hidden states of the encoder",
        )
    ]


def as_its_folder_says(
    module: Any, config: Any, directory: Path, *, weights: bool
) -> tuple[torch.nn.Module, Notes, Sentences | None]:
    """A model of a folder with what the folder's library computes around it.

    Args:
        module: the model.
        config: its config.
        directory: its folder.
        weights: False leaves further weights on the `meta` device.

    Returns:
        The model, notes on what is left to the user, and what the folder says of sentences.

    Raises:
        AtlasError: a file is malformed, or weights do not fit.
    """
    part, notes = encoder_of(module)
    writes = part is module and hasattr(module, "can_generate") and module.can_generate()
    sentences, end = sentences_of(directory), activation_of(directory, config)
    root, computed = None, tuple[Path, ...]()
    if end is not None and type(module).__name__.endswith("ForSequenceClassification"):
        part, left = scorer(part, end)
        notes += left
    if sentences is not None:
        root, notes = sentences.root, [*notes, *sentences.notes]
        if sentences.steps is not None:
            computed = tuple(step.path for step in sentences.steps)
            part = sentence_encoder(part, sentences.steps, sentences.width, weights=weights)
    return part, [*notes, *left_out(directory, root, computed, config, writes)], sentences


def sentence_encoder(
    module: Any, steps: Sequence[Step], width: int | None = None, *, weights: bool
) -> torch.nn.Module:
    """A Transformer with the steps after it. Its answer is what the library's ``encode`` gives.

    Args:
        module: the Transformer; its head, if it has one, is not computed.
        steps: at least the pooling; see ``sentence``.
        width: numbers of an embedding that are kept, the first ones; None for all.
        weights: False leaves the weights of the steps on the `meta` device.

    Raises:
        AtlasError: the weights of a step are missing, or do not fit what they read.
    """
    import torch

    class SentenceEncoder(torch.nn.Module):
        """Token ids and their mask to one embedding for each text, and one for each token."""

        main_input_name = IDS

        def __init__(self) -> None:
            super().__init__()
            self.transformer = module.base_model
            self.config = module.config
            self.steps = torch.nn.ModuleDict(made)

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            token_type_ids: torch.Tensor | None = None,
        ) -> dict[str, torch.Tensor]:
            given = _given(attention_mask, token_type_ids)
            tokens = self.transformer(input_ids, **given).last_hidden_state
            x = torch.cat([_pooled(tokens, attention_mask, mode) for mode in steps[0].poolings], -1)
            for step in steps[1:]:
                known = step.path.name in self.steps
                x = self.steps[step.path.name](x) if known else torch.nn.functional.normalize(x)
            return {EMBEDDING: x[:, :kept], "last_hidden_state": tokens}

    kept, features = width, module.base_model.config.hidden_size * len(steps[0].poolings)
    made: dict[str, torch.nn.Module] = {}
    for step in steps[1:]:
        if step.kind != "Normalize":
            made[step.path.name], features = _layer(step, features, weights)
    return SentenceEncoder()


def scorer(module: Any, activation: str) -> tuple[Any, Notes]:
    """A classifier with the function that ends a CrossEncoder, and a note if it is not known."""
    import torch

    if activation == "Identity":
        return module, []
    if activation not in SCORES:
        return module, [
            (
                f"the program computes the scores before {activation}",
                "  why: this CrossEncoder of sentence-transformers ends with it; atlasc knows "
                f"{', '.join(SCORES)}\n"
                "  what to do: apply it to the decrypted answer",
            )
        ]

    class Scorer(torch.nn.Module):
        """Token ids and their mask to the scores of a text or a pair."""

        main_input_name = IDS

        def __init__(self) -> None:
            super().__init__()
            self.classifier, self.end = module, getattr(torch.nn, activation)()
            self.config = module.config

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            token_type_ids: torch.Tensor | None = None,
        ) -> dict[str, torch.Tensor]:
            given = _given(attention_mask, token_type_ids)
            return {"scores": self.end(self.classifier(input_ids, **given).logits)}

    return Scorer(), []


def _given(mask: torch.Tensor | None, types: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The arguments of a Transformer beside its ids: not each family takes all of them."""
    known = {"attention_mask": mask, "token_type_ids": types}
    return {name: value for name, value in known.items() if value is not None}


def _pooled(tokens: torch.Tensor, mask: torch.Tensor | None, mode: str) -> torch.Tensor:
    """The first token, or the last or the mean of those that the mask keeps."""
    import torch

    if mode == "cls":
        return tokens[:, 0]
    if mask is None:
        return tokens.mean(1) if mode == "mean" else tokens[:, -1]
    if mode == "lasttoken":
        places = torch.arange(mask.shape[1], device=mask.device)
        return tokens[torch.arange(len(mask), device=mask.device), (mask * places).argmax(1)]
    kept = mask[..., None].to(tokens.dtype)
    return (tokens * kept).sum(1) / kept.sum(1)


def _layer(step: Step, width: int, weights: bool) -> tuple[torch.nn.Module, int]:
    """A linear layer with its activation, or a norm; and the number of its results."""
    import torch

    arrays, axes = _arrays(step), 2 if step.kind == "Dense" else 1
    name = "linear" if step.kind == "Dense" else "norm"
    matrix, bias = arrays.get(f"{name}.weight"), arrays.get(f"{name}.bias")
    known = arrays.keys() <= {f"{name}.weight", f"{name}.bias"} and matrix is not None
    fits = known and matrix.ndim == axes and matrix.shape[-1] == width
    if not fits or (bias is not None and bias.shape != matrix.shape[:1]):
        found = {key: tuple(array.shape) for key, array in arrays.items()}
        raise AtlasError(
            f"the weights of the step {step.kind} do not fit the Transformer",
            where=str(step.path),
            why=f"it reads {width} numbers, and its weights are {found or 'missing'}",
            remedy="copy the folder of the step again",
        )
    with torch.device("cpu" if weights else "meta"):
        if step.kind == "Dense":
            outputs = len(matrix)
            layer: Any = torch.nn.Linear(width, outputs, bias=bias is not None)
            part = torch.nn.Sequential(layer, getattr(torch.nn, step.activation)())
        else:
            layer, outputs = torch.nn.LayerNorm(width), width
            part = torch.nn.Sequential(layer)
    if weights:
        tensors = {
            key.rpartition(".")[2]: torch.tensor(np.asarray(array)) for key, array in arrays.items()
        }
        layer.load_state_dict({key: tensor.float() for key, tensor in tensors.items()})
    return part, outputs


def _arrays(step: Step) -> Any:
    """Name -> weights of a step, from one of the two files that the library writes."""
    if (step.path / "model.safetensors").is_file():
        return dict(read_safetensors(step.path / "model.safetensors"))
    pickled: Path = step.path / "pytorch_model.bin"
    return dict(load_pt(pickled)) if pickled.is_file() else {}
