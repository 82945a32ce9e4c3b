"""Targets whose programs run as a C++ project, on a device that Python does not call."""

from __future__ import annotations

from typing import ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.targets.base import Calibration, Target


class ProjectTarget(Target):
    """Programs that run as a C++ project; Python chooses their parameters, keys and costs.

    Attributes:
        libraries: names of the libraries that the project needs where it is built, with a verb.
    """

    libraries: ClassVar[str]
    writes_project = True

    def calibration(self) -> Calibration:
        raise AtlasError(
            f"the primitives of {self.name} cannot be measured from Python",
            why="the primitives run in C++, on a GPU",
            remedy="measure the primitives in C++, and give the table with --costs (docs/costs.md)",
        )

    def check(self) -> None:
        raise AtlasError(
            f"a program for {self.name} runs in the C++ project of its bundle",
            why="its engine computes on a GPU; Python does not call it",
            remedy=f"build BUNDLE/project where {self.libraries} (atlasc emit --build does both), "
            "then use its client and server, or atlasc run with its Python module "
            "(docs/runtime.md); or simulate the program with atlasc run --target sim",
        )
