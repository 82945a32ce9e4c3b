"""The target ``cuda``: the project's own CKKS engine on a GPU, with its own kernels."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.program.transform_work import TransformWork
from atlasc.targets.ckks.engine import KeyedEngine
from atlasc.targets.ckks.gpu import GpuTarget
from atlasc.targets.ckks.parameters import MOST_TOGETHER, CkksParameters


@dataclass(frozen=True)
class CudaParameters(CkksParameters):
    """One parameter set, as in the base class, but with primes of at most 50 bits.

    GPUs with a whole pipe for double precision transform modulo such primes in doubles, 1.8 times
    as fast as in 64-bit integers. On others the set takes as long as one of 60 bits, and has a
    level more (docs/bootstrapping.md).
    """

    family = "cuda"
    prime_bits = 50
    named = "fifteen_levels_40"
    device = "cuda"
    lanes = 4
    """Each lane takes memory, and most ops have three ciphertexts or so."""
    most_sums = 256
    """With any number LLaMA3-8B would take 1 % less, and 100 GiB more (docs/large-models.md)."""
    library_bytes = 2**29
    """Greatest bytes of the CUDA context, the tables of the transforms, and a key switch's
    digits.
    """

    def transform_bytes(self, work: TransformWork) -> int:
        """See the base class: the digits of several sums, and what they are made of."""
        more = max(min(work.giants, MOST_TOGETHER) - 1, 0) * (self.digits(work.level) + 2)
        return super().transform_bytes(work) + more * self._extended_bytes(work.level)


class CudaEngine(KeyedEngine):
    """An engine on real ciphertexts, on a CUDA GPU. Its keys lie in the device's memory."""

    target = "cuda"


class CudaTarget(GpuTarget):
    """Real ciphertexts on a CUDA GPU."""

    libraries = "CUDA is"
    name = "cuda"
    summary = "the project's own CKKS engine, on a CUDA GPU"
    runtime_engine = "cuda"
    parameters = CudaParameters
    keyed = CudaEngine


TARGET = CudaTarget()
