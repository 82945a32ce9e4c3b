"""The target ``phantom``: the C++ runtime on Phantom-FHE, on a GPU."""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.targets.base import Target
from atlasc.targets.phantom.parameters import PhantomParameters


class PhantomTarget(Target):
    """Programs that a C++ project executes; Python chooses parameters, keys and costs for it."""

    name = "phantom"
    summary = "the C++ runtime on Phantom-FHE, on a GPU"
    runtime_engine = "phantom"
    writes_project = True
    parameters = PhantomParameters

    def check_calibration(self) -> None:
        """Refused."""
        raise AtlasError(
            f"the primitives of {self.name} cannot be measured from Python",
            why="they run in C++, on a GPU",
            remedy="measure them there, and give the table with --costs (docs/costs.md)",
        )

    def check(self) -> None:
        """Raise AtlasError: Python does not execute these programs."""
        raise AtlasError(
            "a program for phantom is executed by the C++ project that was compiled with it",
            why="Phantom-FHE is a library of C++ and CUDA; Python does not call it",
            remedy="build BUNDLE/project where CUDA and Phantom are (atlasc emit --build does "
            "both), then use its client and server, or atlasc run with its Python module "
            "(docs/runtime.md); or try the program with atlasc run --target sim",
        )


TARGET = PhantomTarget()
