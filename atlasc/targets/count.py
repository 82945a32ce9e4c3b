"""The target ``count``: it runs a program on levels alone and reports how often each primitive is
called. Its parameter sets are those of ``desilo``."""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.execution.counting_engine import Counted, CountingEngine
from atlasc.targets.base import Progress, Target
from atlasc.targets.desilo.parameters import DesiloParameters
from atlasc.targets.parameters import ParameterSet


class CountEngine(CountingEngine):
    """Counts calls; in place of an answer it gives the report."""

    def decrypt(self, ciphertext: Counted) -> NoReturn:
        """Refused, with the calls by primitive."""
        calls: Counter[str] = Counter()
        for (primitive, _), count in self.total().primitives.items():
            calls[primitive] += count
        report = ", ".join(f"{count} {primitive}" for primitive, count in sorted(calls.items()))
        raise AtlasError(
            "the target count computes no answers",
            why=f"the program took {report}",
            remedy="use --target sim for answers without encryption",
        )


class CountTarget(Target):
    """Counts in a second what takes a minute on ciphertexts."""

    name = "count"
    summary = "counts primitives and computes nothing"
    encrypted = False
    parameters = DesiloParameters

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> CountEngine:
        return CountEngine(*parameters.shape)


TARGET = CountTarget()
