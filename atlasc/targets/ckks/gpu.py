"""Targets that compute on a GPU."""

from __future__ import annotations

from typing import ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.runtime.native import load_library, translated
from atlasc.targets.base import Calibration, Gpu
from atlasc.targets.ckks.engine import HOST, KeyedTarget
from atlasc.targets.key_folders import Role


class GpuTarget(KeyedTarget):
    """Real ciphertexts on a GPU: in this process where atlasc was built for it, and in the C++
    project of a program.

    Attributes:
        libraries: names of the libraries that a build needs, with a verb.
    """

    libraries: ClassVar[str]
    writes_project = True

    def check(self) -> None:
        """See the base class: the engine is here, and a GPU with its driver."""
        self.gpus()

    def check_role(self, role: Role) -> None:
        """See the base class: a client computes on the processors, if their engine is here."""
        if role == "server" or HOST not in load_library().engines:
            self.check()

    def gpus(self) -> list[Gpu]:
        super().check()
        with translated():
            return [Gpu(*one) for one in load_library().devices(self.keyed.known_as())]

    def calibration(self) -> Calibration:
        raise AtlasError(
            f"the primitives of {self.name} cannot be measured from Python",
            why="a program in C++ measures them",
            remedy="run it, and give its table with --costs (docs/costs.md)",
        )

    def _remedy(self) -> str:
        return (
            f"install it where {self.libraries}, with ATLASC_ENGINE={self.name} "
            "(docs/backend-phantom.md); or build BUNDLE/project there (atlasc emit --build does "
            "both), and use its client and server; or simulate the program with --target sim"
        )
