"""Weights of 16 bits that stay in their mapped files."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from atlasc.ir.arrays.tensor_files import TensorFile
from atlasc.passes.frontend.exported.half import HalfTensor

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
"""safetensors' names of types."""
HALF = ("F16", "BF16")


def half_tensors(files: Sequence[Path]) -> dict[str, torch.Tensor] | None:
    """The tensors of safetensors files, mapped: those of 16 bits as `HalfTensor`.

    None if none has 16 bits, or one has a type that is no plain number.

    Raises:
        AtlasError: a file cannot be read, or is damaged.
    """
    opened = [TensorFile(path) for path in files]
    kinds = {kind for file in opened for kind, *_ in file.entries.values()}
    if not kinds & {*HALF} or not kinds <= TYPES.keys():
        return None
    tensors: dict[str, torch.Tensor] = {}
    for file in opened:
        content = mmap.mmap(file.descriptor, 0, access=mmap.ACCESS_COPY)
        for name, (kind, shape, offset) in file.entries.items():
            count = math.prod(shape)
            found = torch.empty(shape, dtype=TYPES[kind])
            if count:
                flat = torch.frombuffer(content, dtype=TYPES[kind], count=count, offset=offset)
                found = flat.view(shape)
            tensors[name] = HalfTensor(found, file.require_unchanged) if kind in HALF else found
    return tensors


def halves_kept(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors in memory, with those of 16 bits as `HalfTensor`."""
    half = [TYPES[kind] for kind in HALF]
    return {
        name: HalfTensor(one, lambda: None) if one.dtype in half else one
        for name, one in tensors.items()
    }
