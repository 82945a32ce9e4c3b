"""The targets that a lowered program runs on, by name; imported only when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from atlasc.ir.errors import AtlasError


@dataclass(frozen=True)
class Backend:
    """One target of the command line.

    Attributes:
        name: as in ``--target``.
        summary: one line for the help text.
        module: import path of the implementation.
        encrypted: whether it needs keys and works on real ciphertexts.
        has_costs: whether a table of what its primitives cost comes with atlasc. The simulator's is
            that of ``desilo``, whose parameter sets it shows.
    """

    name: str
    summary: str
    module: str
    encrypted: bool
    has_costs: bool = True

    def load(self) -> ModuleType:
        """Import the implementation, after :meth:`check`."""
        self.check()
        return importlib.import_module(self.module)

    def check(self) -> None:
        """Raise AtlasError, with the remedy, unless this target works on this machine."""
        check = _CHECKS.get(self.name)
        if check is not None:
            check()


def _check_desilo() -> None:
    from atlasc.targets.desilo.library import load_library

    load_library()


def _check_phantom() -> None:
    raise AtlasError(
        "a program for phantom is executed by the C++ project that was compiled with it",
        why="Phantom-FHE is a library of C++ and CUDA; Python does not call it",
        remedy="build BUNDLE/project where CUDA and Phantom are (atlasc emit --build does both), "
        "then use its client and server, or atlasc run with its Python module (docs/runtime.md); "
        "or try the program with atlasc run --target sim",
    )


_CHECKS: dict[str, Callable[[], None]] = {"desilo": _check_desilo, "phantom": _check_phantom}

BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("sim", "cleartext slots with levels and noise", "atlasc.targets.sim.engine", False),
        Backend("desilo", "desilofhe on the CPU", "atlasc.targets.desilo.engine", True),
        Backend(
            "phantom",
            "the C++ runtime on Phantom-FHE, on a GPU",
            "atlasc.targets.phantom.parameters",
            True,
            has_costs=False,
        ),
    )
}


def get_backend(name: str) -> Backend:
    """The backend of that name; AtlasError with the known names if there is none."""
    if name not in BACKENDS:
        raise AtlasError(
            f"there is no target {name!r}", remedy=f"choose one of: {', '.join(BACKENDS)}"
        )
    return BACKENDS[name]
