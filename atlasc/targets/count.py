"""The target ``count``: runs a program on levels alone and counts the calls of each primitive. Its
parameter sets are those of ``cpu``."""

from __future__ import annotations

from atlasc.ir.module import Module
from atlasc.program.counting_engine import CountingEngine
from atlasc.targets.base import Progress, Target
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import ParameterSet


class CountTarget(Target):
    """Counts in a second what takes a minute on ciphertexts; reports the counts, not an answer."""

    name = "count"
    summary = "counts primitives and computes nothing"
    encrypted = False
    parameters = CpuParameters

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> CountingEngine:
        return CountingEngine(*parameters.shape)


TARGET = CountTarget()
