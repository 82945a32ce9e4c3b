"""The module of torch, or of transformers, that each activation of the table is."""

from __future__ import annotations

import torch
from transformers.activations import ACT2FN

TORCH_ACTIVATIONS: dict[str, torch.nn.Module] = {
    "gelu": torch.nn.GELU(),
    "gelu_tanh": ACT2FN["gelu_new"],
    "silu": torch.nn.SiLU(),
    "quick_gelu": ACT2FN["quick_gelu"],
    "mish": torch.nn.Mish(),
    "softplus": torch.nn.Softplus(),
    "elu": torch.nn.ELU(),
    "sigmoid": torch.nn.Sigmoid(),
    "tanh": torch.nn.Tanh(),
    "relu": torch.nn.ReLU(),
    "relu_squared": ACT2FN["relu2"],
    "clip": torch.nn.Hardtanh(0.0, 1.0),
    "selu": torch.nn.SELU(),
    "softsign": torch.nn.Softsign(),
}
