"""Builds an emitted project with CMake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from atlasc.ir.errors import AtlasError

COMPILERS = ("c++", "g++", "clang++")
_TAIL = 30
"""Lines of a failed build that are shown."""
_REMEDIES = {
    "sim": "see what the tools say; the project stays, to be built by hand",
    "phantom": "build where CUDA is, and set the variable Phantom_ROOT to the folder where "
    "Phantom-FHE was built (docs/backend-phantom.md); --engine sim tries the program without both",
}
"""By engine."""


def require_tools() -> None:
    """Raise AtlasError unless CMake and a C++ compiler are there."""
    compiler = os.environ.get("CXX")
    if shutil.which("cmake") is None:
        raise AtlasError(
            "CMake was not found",
            why="an emitted project is built with it",
            remedy="install cmake (3.16 or newer), or build the project on another machine",
        )
    if not any(shutil.which(name) for name in ([compiler] if compiler else COMPILERS)):
        raise AtlasError(
            f"the C++ compiler {compiler} was not found"
            if compiler
            else "no C++ compiler was found",
            why="looked for " + ", ".join([compiler] if compiler else COMPILERS),
            remedy="install one, or set CXX to its path",
        )


def python_definitions() -> list[str]:
    """CMake options for the Python module of this interpreter.

    Raises:
        AtlasError: pybind11 is missing.
    """
    try:
        import pybind11
    except ImportError:
        raise AtlasError(
            "pybind11 was not found",
            why="the Python module of an emitted project is built with it",
            remedy="pip install 'atlasc[python]'",
        ) from None
    return [
        "-DATLASC_PYTHON=ON",
        "-DPYBIND11_FINDPYTHON=ON",  # else CMake takes the first Python on the path
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]


def build_project(
    folder: Path, engine: str, definitions: Sequence[str] = (), jobs: int | None = None
) -> Path:
    """Build the project in ``folder/build``; the executables ``client`` and ``server`` are there.

    Args:
        folder: what ``write_project`` wrote.
        engine: the one it was written for.
        definitions: CMake options, such as ``-DCMAKE_BUILD_TYPE=Debug``.
        jobs: compilers that run side by side; None: as many as there are cores.

    Raises:
        AtlasError: a tool is missing, or the build failed; shows the end of what it printed.
    """
    require_tools()
    build = folder / "build"
    remedy = _REMEDIES[engine]
    _run(["cmake", "-S", str(folder), "-B", str(build), *definitions], remedy)
    parallel = str(jobs or os.cpu_count() or 1)
    _run(["cmake", "--build", str(build), "--parallel", parallel], remedy)
    return build


def _run(command: list[str], remedy: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr).strip().splitlines()[-_TAIL:]
        raise AtlasError(
            "the build failed", where=" ".join(command), why="\n".join(tail), remedy=remedy
        )
