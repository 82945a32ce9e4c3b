"""The tensors that the C++ client encrypts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atlasc.client.program import ClientProgram
from atlasc.files import write_with


def save_inputs(path: Path, client: ClientProgram, arrays: Mapping[str, np.ndarray]) -> None:
    """Write what the client's part makes of raw inputs, as float64, as many rows as inputs.

    Raises:
        AtlasError: of the inputs; more than a batch.
    """
    from safetensors.numpy import save_file

    count = len(next(iter(arrays.values())))
    prepared = client.prepare(arrays)
    tensors = {
        name: np.ascontiguousarray(tensor[:count], dtype=np.float64)
        for name, tensor in prepared.items()
    }
    write_with(path, lambda draft: save_file(tensors, draft))
