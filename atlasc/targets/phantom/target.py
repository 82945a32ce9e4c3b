"""The target ``phantom``: the C++ runtime on Phantom-FHE, on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.targets.base import Target
from atlasc.targets.costs.files import known_table
from atlasc.targets.phantom.parameters import PhantomParameters, choose_parameters


class PhantomTarget(Target):
    """Programs that a C++ project executes; Python chooses parameters, keys and costs for it."""

    name = "phantom"
    summary = "the C++ runtime on Phantom-FHE, on a GPU"
    runtime_engine = "phantom"
    writes_project = True
    device = True

    def choose_parameters(self, levels: int, slots: int = 1) -> PhantomParameters:
        """See the base class."""
        return choose_parameters(levels, min_slots=slots)

    def read_parameters(self, data: Mapping[str, Any]) -> PhantomParameters:
        """See the base class."""
        return PhantomParameters.from_dict(data)

    def has_costs(self) -> bool:
        """No table comes with atlasc; one may have been named."""
        return known_table(self.name) is not None

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
