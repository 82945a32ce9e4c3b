"""The target ``cuda``: the C++ runtime's own CKKS engine, on a GPU, with kernels of its own."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.targets.phantom import PhantomParameters, PhantomTarget


@dataclass(frozen=True)
class CudaParameters(PhantomParameters):
    """One parameter set; those of ``phantom``."""

    family = "cuda"
    library_bytes = 2**29
    """The CUDA context, the tables of the transforms, and the digits of a key switch, at most."""


class CudaTarget(PhantomTarget):
    """Programs that a C++ project executes; Python chooses parameters, keys and costs for it."""

    name = "cuda"
    summary = "the project's own CKKS engine, on a CUDA GPU"
    runtime_engine = "cuda"
    parameters = CudaParameters

    def check(self) -> None:
        raise AtlasError(
            "a program for cuda is executed by the C++ project that was compiled with it",
            why="its engine is built where CUDA is",
            remedy="build BUNDLE/project there (atlasc emit --build does it), then use its client "
            "and server (docs/runtime.md); or try the program with atlasc run --target sim",
        )


TARGET = CudaTarget()
