"""Which simulator evaluates a search: NumPy on processors, or torch on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.simulation.simulate import PolynomialSimulator
from atlasc.passes.simulation.simulator import Simulator
from atlasc.passes.simulation.torch_simulator import TorchSimulator

AUTO = "auto"


def simulator(
    module: Module,
    dtype: Any = np.float32,
    threads: int | None = None,
    memory: int = 0,
    device: str = AUTO,
) -> Simulator:
    """The simulator for a device.

    Args:
        dtype: float32 or float64; a GPU evaluates in float32.
        threads, memory: of the simulator on processors.
        device: "cpu", a torch device such as "cuda", or "auto": a GPU if there is one.

    Raises:
        AtlasError: there is no such device, or it does not evaluate in that dtype.
    """
    single = np.dtype(dtype) == np.float32
    if device == "cpu" or (device == AUTO and not (single and _has_gpu())):
        return PolynomialSimulator(module, dtype, threads, memory)
    if device != AUTO and not single:
        raise AtlasError(f"{device} evaluates in float32 only", remedy="leave the device out")
    if device != AUTO and not _has_gpu():
        raise AtlasError(
            f"there is no device {device!r}",
            why="torch sees no GPU",
            remedy="leave the device out, or install torch with CUDA",
        )
    return TorchSimulator(module, "cuda" if device == AUTO else device)


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
