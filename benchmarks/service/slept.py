"""The target ``slept``: a simulator on which each op takes the predicted time of ``cpu``, asleep.

Workers of one machine share its processors, so they cannot show what two machines would do. Asleep
they need no processor: what is measured is the service, Ray and the way of queries and answers,
beside work that takes as long as it would.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import MANIFEST
from atlasc.program.counting_engine import counts_of
from atlasc.program.function import Function
from atlasc.targets.costs import costs_of
from atlasc.targets.sim import SimRoleEngine, SimTarget

if TYPE_CHECKING:
    pass

NAME = "slept"


class SleptEngine(SimRoleEngine):
    """A simulator that sleeps after each function."""

    target = NAME
    built_on = "sim"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds: dict[int, tuple[Function, float]] = {}

    def play(
        self,
        function: Function,
        operands: Sequence[Sequence[Any]],
        arrays: Sequence[NDArray[Any]] = (),
    ) -> list[Any]:
        """Compute, and sleep until the function would be done on ``cpu``."""
        began = time.perf_counter()
        if id(function) not in self._seconds:  # a function's own digest takes long
            seconds = counts_of(function).seconds(costs_of(self.parameters))
            self._seconds[id(function)] = function, seconds
        end = began + self._seconds[id(function)][1]
        results = super().play(function, operands, arrays)
        time.sleep(max(0.0, end - time.perf_counter()))
        return results


class SleptTarget(SimTarget):
    """The simulator, with engines that sleep."""

    name = NAME
    summary = "the simulator, as slow as cpu"
    keyed = SleptEngine


TARGET = SleptTarget()


def install(folder: Path) -> None:
    """Make a folder a package that declares the target, once it is in PYTHONPATH."""
    place = folder / f"{NAME}-1.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1\n")
    (place / "entry_points.txt").write_text(f"[atlasc.targets]\n{NAME} = {__name__}:TARGET\n")


def slept_copy(bundle: Path, place: Path) -> Path:
    """A copy of a bundle of ``cpu`` whose manifest says that it is for this target."""
    load_bundle(bundle)
    shutil.copytree(bundle, place)
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest["target"] = NAME
    (place / MANIFEST).write_text(json.dumps(manifest))
    return place
