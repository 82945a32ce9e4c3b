"""Targets whose programs a C++ project executes, on a device that Python does not call."""

from __future__ import annotations

from typing import ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.targets.base import Calibration, Target


class ProjectTarget(Target):
    """Programs that a C++ project executes; Python chooses parameters, keys and costs for it.

    Attributes:
        libraries: what must be where the project is built.
    """

    libraries: ClassVar[str]
    writes_project = True

    def calibration(self) -> Calibration:
        raise AtlasError(
            f"the primitives of {self.name} cannot be measured from Python",
            why="they run in C++, on a GPU",
            remedy="measure them there, and give the table with --costs (docs/costs.md)",
        )

    def check(self) -> None:
        raise AtlasError(
            f"a program for {self.name} is executed by the C++ project that was compiled with it",
            why="its engine computes on a GPU; Python does not call it",
            remedy=f"build BUNDLE/project where {self.libraries} (atlasc emit --build does both), "
            "then use its client and server, or atlasc run with its Python module "
            "(docs/runtime.md); or try the program with atlasc run --target sim",
        )
