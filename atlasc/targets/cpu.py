"""The target ``cpu``: the C++ runtime's own CKKS engine, on this machine's processors.

It has the parameters of ``phantom``, but primes of at most 50 bits, for which AVX-512 IFMA
multiplies eight numbers at a time, and AVX2 four. A level that needs more bits has two primes.
"""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.targets.phantom import PhantomParameters, PhantomTarget


@dataclass(frozen=True)
class CpuParameters(PhantomParameters):
    """One parameter set; see the base class."""

    family = "cpu"
    device = False
    library_bytes = 2**28
    """Tables of the transforms, and what a key switch works on."""
    prime_bits = 50
    named = "fourteen_levels_40"


class CpuTarget(PhantomTarget):
    """Programs that a C++ project executes on processors."""

    name = "cpu"
    summary = "the C++ runtime's own CKKS engine, on this machine's processors"
    runtime_engine = "cpu"
    parameters = CpuParameters

    def check(self) -> None:
        raise AtlasError(
            "a program for cpu is executed by the C++ project that was compiled with it",
            why="the engine is built with the project",
            remedy="build BUNDLE/project with CMake (atlasc emit --build --python does it), then "
            "use its client and server, or atlasc run --project with its Python module "
            "(docs/runtime.md); or try the program with atlasc run --target sim",
        )


TARGET = CpuTarget()
