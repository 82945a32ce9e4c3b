"""Weights of 16 bits that stay as they are stored: in their mapped files, or in memory."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.ir.arrays.tensor_files import TensorFile
from atlasc.passes.frontend.exported.half import half_tensor

if TYPE_CHECKING:
    import torch

TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""safetensors' and torch's names of types."""
HALF = ("F16", "BF16")


def half_tensors(files: Sequence[Path]) -> dict[str, torch.Tensor] | None:
    """The tensors of safetensors files, mapped: those of 16 bits as ``HalfTensor``.

    None if none has 16 bits, or one has a type that is no plain number.

    Raises:
        AtlasError: a file cannot be read, or is damaged.
    """
    import torch

    opened = [TensorFile(path) for path in files]
    kinds = {kind for file in opened for kind, *_ in file.entries.values()}
    if not kinds & {*HALF} or not kinds <= TYPES.keys():
        return None
    tensors: dict[str, torch.Tensor] = {}
    for file in opened:
        content = mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_COPY)
        for name, (kind, shape, offset) in file.entries.items():
            dtype, count = getattr(torch, TYPES[kind]), math.prod(shape)
            found = torch.empty(shape, dtype=dtype)
            if count:
                flat = torch.frombuffer(content, dtype=dtype, count=count, offset=offset)
                found = flat.view(shape)
            tensors[name] = half_tensor()(found, file.require_unchanged) if kind in HALF else found
    return tensors


def halves_kept(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors in memory, with those of 16 bits as ``HalfTensor``."""
    import torch

    half = torch.float16, torch.bfloat16
    return {
        name: half_tensor()(one, lambda: None) if one.dtype in half else one
        for name, one in tensors.items()
    }
