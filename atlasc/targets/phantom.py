"""The target ``phantom``: our CKKS engine on a GPU, with the transforms of Phantom-FHE."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.ckks.project import ProjectTarget


@dataclass(frozen=True)
class PhantomParameters(CkksParameters):
    """One parameter set."""

    family = "phantom"
    device = True
    library_bytes = 2**30
    """The CUDA context, Phantom's tables, and the digits of a key switch, at most."""


class PhantomTarget(ProjectTarget):
    """Programs that a C++ project executes; Python chooses parameters, keys and costs for it."""

    libraries = "CUDA and Phantom are"
    name = "phantom"
    summary = "the C++ runtime on Phantom-FHE, on a GPU"
    runtime_engine = "phantom"
    parameters = PhantomParameters


TARGET = PhantomTarget()
