"""Models whose residual stream is rotated; their outputs stay the same.

A norm commutes with an orthogonal map Q of its features, once its gain has moved into the layers
that read it. So what writes to the stream may be multiplied by Q, and what reads it by the
transpose (QuaRot: Ashkboos et al. 2024, https://arxiv.org/abs/2404.00456). Behind a LayerNorm Q
also has to keep the mean of the features. In a post-norm model the gain stands between the norm and
the next sum, so Q does not go through it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.fft import dct
from scipy.linalg import block_diag, hadamard
from torch import nn
from transformers.pytorch_utils import Conv1D


@dataclass(frozen=True)
class Layers:
    """The layers of a model around its residual stream.

    Attributes:
        norms: the norms, each with the layers that read it: `nn.Linear`, or GPT-2's `Conv1D`.
        embeddings: tensors whose last axis is the stream.
        writers: layers whose results are added to the stream.
    """

    norms: dict[Any, list[Any]]
    embeddings: list[torch.Tensor]
    writers: list[Any]


def rotate(layers: Layers, made: Callable[[int, bool], np.ndarray]) -> None:
    """Rotate the residual stream of a model in place.

    Args:
        layers: of the model.
        made: from the number of features, and whether Q keeps their mean, to Q.
    """
    (size,) = {norm.weight.shape[0] for norm in layers.norms}
    turn = torch.from_numpy(made(size, any(isinstance(n, nn.LayerNorm) for n in layers.norms)))
    with torch.no_grad():
        for rows in layers.embeddings:
            rows.copy_(rows.double() @ turn)
        for layer in layers.writers:
            matrix_of(layer).copy_(turn.T @ matrix_of(layer).double())
            if layer.bias is not None:
                layer.bias.copy_(layer.bias.double() @ turn)
        for norm, readers in layers.norms.items():
            gain, shift = norm.weight.double().clone(), torch.zeros(size, dtype=torch.double)
            norm.weight.fill_(1.0)
            if isinstance(norm, nn.LayerNorm):
                shift = norm.bias.double().clone()
                norm.bias.zero_()
            for layer in readers:
                weight = matrix_of(layer).double()
                if shift.any():
                    layer.bias.copy_(layer.bias.double() + weight @ shift)
                matrix_of(layer).copy_(weight * gain @ turn)


def matrix_of(layer: Any) -> torch.Tensor:
    """A view [features of the result, features of the argument] of a layer's weight."""
    return layer.weight.T if isinstance(layer, Conv1D) else layer.weight.flatten(1)


def orthogonal(size: int, keeps_mean: bool) -> np.ndarray:
    """A random orthogonal matrix, which keeps a vector of equal elements if it keeps the mean."""
    rng = np.random.default_rng(0)
    if not keeps_mean:
        return np.linalg.qr(rng.normal(size=(size, size)))[0]
    basis = _basis(size)
    inner = np.linalg.qr(rng.normal(size=(size - 1, size - 1)))[0]
    return basis @ block_diag(1.0, inner) @ basis.T


def randomised_hadamard(size: int, keeps_mean: bool) -> np.ndarray:
    """Signs and a Hadamard matrix; with signs of its rows in between if it keeps the mean."""
    signs, basis = np.random.default_rng(0).choice([-1.0, 1.0], size), _basis(size)
    if not keeps_mean:
        return signs[:, None] * basis
    signs[0] = 1.0
    return (basis * signs) @ basis.T


def _basis(size: int) -> np.ndarray:
    """A Hadamard matrix of the greatest power of two that divides the size, times a cosine
    transform of the rest; the first column has equal elements.
    """
    power = size & -size
    rest = dct(np.eye(size // power), axis=0, norm="ortho").T
    return np.kron(hadamard(power) / np.sqrt(power), rest)


MATRICES = {"hadamard": randomised_hadamard, "random": orthogonal}


def llama_layers(model: Any) -> Layers:
    """Of a LLaMA."""
    norms: dict[Any, list[Any]] = {model.model.norm: [model.lm_head]}
    writers = []
    for block in model.model.layers:
        attention, mlp = block.self_attn, block.mlp
        norms[block.input_layernorm] = [attention.q_proj, attention.k_proj, attention.v_proj]
        norms[block.post_attention_layernorm] = [mlp.gate_proj, mlp.up_proj]
        writers += [attention.o_proj, mlp.down_proj]
    return Layers(norms, [model.model.embed_tokens.weight], writers)


def gpt2_layers(model: Any) -> Layers:
    """Of a GPT-2 whose last norm adds nothing, because its head has no bias."""
    body, writers = model.transformer, []
    norms: dict[Any, list[Any]] = {body.ln_f: [model.lm_head]}
    for block in body.h:
        norms[block.ln_1], norms[block.ln_2] = [block.attn.c_attn], [block.mlp.c_fc]
        writers += [block.attn.c_proj, block.mlp.c_proj]
    return Layers(norms, [body.wte.weight, body.wpe.weight], writers)


def vit_layers(model: Any) -> Layers:
    """Of a Vision Transformer for classification."""
    body = model.vit
    first = body.embeddings
    norms: dict[Any, list[Any]] = {body.layernorm: [model.classifier]}
    writers = [first.patch_embeddings.projection]
    for block in body.layers:
        attention, mlp = block.attention, block.mlp
        norms[block.layernorm_before] = [attention.q_proj, attention.k_proj, attention.v_proj]
        norms[block.layernorm_after] = [mlp.fc1]
        writers += [attention.o_proj, mlp.fc2]
    return Layers(norms, [first.cls_token, first.position_embeddings], writers)
