"""The target ``cuda``: the C++ runtime's own CKKS engine, on a GPU, with kernels of its own."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.ckks.project import ProjectTarget


@dataclass(frozen=True)
class CudaParameters(CkksParameters):
    """One parameter set."""

    family = "cuda"
    device = True
    library_bytes = 2**29
    """The CUDA context, the tables of the transforms, and the digits of a key switch, at most."""


class CudaTarget(ProjectTarget):
    """Programs that a C++ project executes; Python chooses parameters, keys and costs for it."""

    libraries = "CUDA is"
    name = "cuda"
    summary = "the project's own CKKS engine, on a CUDA GPU"
    runtime_engine = "cuda"
    parameters = CudaParameters


TARGET = CudaTarget()
