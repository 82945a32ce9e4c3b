"""The target ``phantom``: atlasc's CKKS engine on a GPU, with the transforms of Phantom-FHE."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.targets.ckks.engine import KeyedEngine
from atlasc.targets.ckks.gpu import GpuTarget
from atlasc.targets.ckks.parameters import CkksParameters


@dataclass(frozen=True)
class PhantomParameters(CkksParameters):
    """One parameter set."""

    family = "phantom"
    device = "phantom"
    library_bytes = 2**30
    """Greatest bytes of the CUDA context, Phantom's tables, and the digits of a key switch."""


class PhantomEngine(KeyedEngine):
    """An engine on real ciphertexts, on a CUDA GPU. Its keys lie in the device's memory."""

    target = "phantom"


class PhantomTarget(GpuTarget):
    """Real ciphertexts on a CUDA GPU."""

    libraries = "CUDA and Phantom are"
    name = "phantom"
    summary = "the C++ runtime on Phantom-FHE, on a GPU"
    runtime_engine = "phantom"
    parameters = PhantomParameters
    keyed = PhantomEngine


TARGET = PhantomTarget()
