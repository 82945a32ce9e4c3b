"""The target ``phantom``: atlasc's CKKS engine on a GPU, with the transforms of Phantom-FHE."""

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
    """Greatest bytes of the CUDA context, Phantom's tables, and the digits of a key switch."""


class PhantomTarget(ProjectTarget):
    """Programs that run as a C++ project; Python chooses their parameters, keys and costs."""

    libraries = "CUDA and Phantom are"
    name = "phantom"
    summary = "the C++ runtime on Phantom-FHE, on a GPU"
    runtime_engine = "phantom"
    parameters = PhantomParameters


TARGET = PhantomTarget()
