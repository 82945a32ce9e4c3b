"""Writes the C++ project of a lowered program, what its client encrypts, and builds it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from atlasc.bundle.ledger import noted
from atlasc.client.program import ClientProgram
from atlasc.emit import text
from atlasc.emit.interface import NUMBERS, interface_facts
from atlasc.emit.program import program_text
from atlasc.files import new_folder, write_private
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function
from atlasc.program.record_arrays import record_arrays
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import identity_of
from atlasc.templates import templates

RUNTIME = Path(__file__).parents[1] / "runtime_cuda"
"""Sources of the C++ runtime, as they are installed."""
RUNTIME_PARTS = (
    "CMakeLists.txt",
    "include",
    "src",
    "ckks",
    "devices",
    "python",
    "sim",
)
SOURCES = ("interface.cpp", "program.hpp", "program.cpp", "client.cpp", "server.cpp", "python.cpp")
WEIGHTS = "weights.safetensors"
COMPILERS = ("c++", "g++", "clang++")
_TAIL = 30
"""Lines of a failed build that are shown."""
ENGINES = {
    "sim": "see what the tools say; the project stays, to be built by hand",
    "cpu": "see what the tools say; the project stays, to be built by hand",
    "cuda": "build where CUDA is, with a compiler that nvcc takes",
    "phantom": "build where CUDA is, and set the variable Phantom_ROOT to the folder where "
    "Phantom-FHE was built (docs/backend-phantom.md); --engine sim tries the program without both",
}
"""The engines of the C++ runtime, and what to do when a build with one fails; a project has the
sources of all, and links one."""


def sources(program: Module, parameters: ParameterSet, engine: str = "sim") -> dict[str, str]:
    """The generated files by their path in the project; the same program gives the same bytes.

    Args:
        program: ckks module with levels and a plan of rotations.
        parameters: what it was lowered for.
        engine: one of ``ENGINES``, which is linked unless CMake is told otherwise.

    Raises:
        AtlasError: there is no such engine, or it cannot have these parameters; the rotations are
            not planned.
    """
    _require_engine(engine, parameters)
    return _sources(program, parameters, engine, *_recorded(program, parameters))


def _require_engine(engine: str, parameters: ParameterSet) -> None:
    if engine not in ENGINES:
        raise AtlasError(f"there is no engine {engine!r}", remedy=f"use {' or '.join(ENGINES)}")
    if engine != "sim" and not parameters.in_runtime:
        raise AtlasError(
            f"the program was not compiled for the engine {engine}",
            why="its parameters name no moduli",
            remedy="compile the model again with --target cpu or phantom",
        )


def _sources(
    program: Module,
    parameters: ParameterSet,
    engine: str,
    calls: Mapping[Op, Function],
    arrays: Mapping[str, np.ndarray],
) -> dict[str, str]:
    environment = templates("atlasc.emit")
    names = ("integer", "integers", "number", "numbers", "lines", "variable", "comment")
    environment.filters |= {name: getattr(text, name) for name in names} | {"quoted": text.string}
    facts = {
        "name": text.identifier(program.name),
        "engine": engine,
        "interface": interface_facts(program, parameters, arrays),
        "program": program_text(program, calls),
    }
    paths = ["CMakeLists.txt", "README.md", *(f"src/{name}" for name in SOURCES)]
    return {
        path: environment.get_template(f"{Path(path).name}.jinja").render(facts) for path in paths
    }


def _recorded(
    program: Module, parameters: ParameterSet
) -> tuple[dict[Op, Function], dict[str, np.ndarray]]:
    """What a program's ops call, and the server's arrays by name: those of the program, and its
    record.

    Raises:
        AtlasError: a name has characters that no file may have, or is that of the record.
    """
    calls = Functions(program, EngineParameters.of(parameters)).named()
    functions = list(dict.fromkeys(calls.values()))
    periods = {period for function in functions for period in function.periods}
    circuits = [one for period in sorted(periods) for one in parameters.circuit(period)]
    arrays = record_arrays([*functions, *circuits])
    for name, array in sorted(program.arrays_used().items()):
        if not name.isprintable() or name in arrays:
            raise AtlasError(f"an array cannot be called {name!r}")
        kept = None if array.dtype in NUMBERS else np.float64
        arrays[name] = np.ascontiguousarray(array, kept).reshape(np.shape(array))
    return calls, arrays


def write_project(
    folder: Path, program: Module, parameters: ParameterSet, engine: str = "sim"
) -> None:
    """Write a new folder, which appears whole or not at all.

    Raises:
        AtlasError: as :func:`sources`; the folder exists or cannot be written.
    """
    from safetensors.numpy import save_file

    _require_engine(engine, parameters)
    calls, arrays = _recorded(program, parameters)
    files = _sources(program, parameters, engine, calls, arrays)
    with new_folder(folder) as draft:
        for path, content in files.items():
            (draft / path).parent.mkdir(exist_ok=True)
            (draft / path).write_text(content, encoding="utf-8")
        save_file(arrays, draft / WEIGHTS, {"program": identity_of(program)})
        for part in RUNTIME_PARTS:
            copy = shutil.copytree if (RUNTIME / part).is_dir() else shutil.copyfile
            (draft / "runtime").mkdir(exist_ok=True)
            copy(RUNTIME / part, draft / "runtime" / part)


def save_inputs(
    path: Path, client: ClientProgram, arrays: Mapping[str, np.ndarray], doubt: str = ""
) -> None:
    """Write what the C++ client encrypts of raw inputs: safetensors, float64 by name, as many
    rows as inputs. Only the owner may read the file.

    Args:
        doubt: why the bound on the errors may not hold for these inputs; the C++ client notes it
            with the query.

    Raises:
        AtlasError: of the inputs; more than a batch.
    """
    from safetensors.numpy import save_file

    prepared = client.prepare(arrays)
    rows = {n: np.ascontiguousarray(a, dtype=np.float64) for n, a in prepared.items()}
    write_private(path, lambda draft: save_file(rows, draft, {"doubt": noted(doubt)}))


# --- building


def build_options(python: bool = False) -> list[str]:
    """CMake options of a build, with a module for this interpreter where ``python`` is true.

    Raises:
        AtlasError: CMake, a C++ compiler or pybind11 is missing.
    """
    if shutil.which("cmake") is None:
        raise AtlasError(
            "CMake was not found",
            why="an emitted project is built with it",
            remedy="install cmake (3.16 or newer), or build the project on another machine",
        )
    compiler = os.environ.get("CXX")
    wanted = [compiler] if compiler else COMPILERS
    if not any(map(shutil.which, wanted)):
        missing = f"the C++ compiler {compiler} was not" if compiler else "no C++ compiler was"
        raise AtlasError(
            f"{missing} found",
            why="looked for " + ", ".join(wanted),
            remedy="install one, or set CXX to its path",
        )
    if not python:
        return []
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


def build_project(folder: Path, engine: str, options: Sequence[str]) -> Path:
    """Build the project in ``folder/build``; the executables ``client`` and ``server`` are there.

    Args:
        folder: what :func:`write_project` wrote.
        engine: the one it was written for.
        options: what :func:`build_options` returned.

    Raises:
        AtlasError: the build failed; shows the end of what it printed.
    """
    build = folder / "build"
    for command in (
        ["cmake", "-S", str(folder), "-B", str(build), *options],
        ["cmake", "--build", str(build), "--parallel", str(os.cpu_count() or 1)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = (done.stdout + done.stderr).strip().splitlines()[-_TAIL:]
            raise AtlasError(
                "the build failed",
                where=" ".join(command),
                why="\n".join(tail),
                remedy=ENGINES[engine],
            )
    return build
