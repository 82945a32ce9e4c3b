"""Writes and builds the C++ project of a lowered program, and the inputs for its client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from atlasc.bundle.ledger import noted
from atlasc.bundle.program_writer import program_content, write_interface, write_program
from atlasc.client.in_clear import require_listed
from atlasc.client.program import ClientProgram
from atlasc.emit import text
from atlasc.emit.program import program_text
from atlasc.files import new_folder, write_private
from atlasc.ir.arrays.tensor_files import TensorFile
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters
from atlasc.program.key_plan import key_plan
from atlasc.runtime.interface import interface_of, states_of
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import identity_of
from atlasc.templates import templates

RUNTIME = Path(__file__).parents[1] / "runtime_cuda"
"""Sources of the C++ runtime in the installed package."""
RUNTIME_PARTS = (
    "CMakeLists.txt",
    "include",
    "src",
    "ckks",
    "devices",
    "programs",
    "python",
    "sim",
)
SOURCES = ("program.hpp", "program.cpp", "server.cpp", "python.cpp")
PROGRAM, INTERFACE = "program.safetensors", "interface.safetensors"
"""The files of the two roles, as a bundle has them. The sources are a view of the first."""
COMPILERS = ("c++", "g++", "clang++")
_TAIL = 30
"""Number of lines that are shown of a failed build."""
ENGINES = {
    "sim": "read the tools' messages; the project is kept, so you can build it by hand",
    "cpu": "read the tools' messages; the project is kept, so you can build it by hand",
    "cuda": "build on a machine with CUDA, with a compiler that nvcc accepts",
    "phantom": "build on a machine with CUDA, and set Phantom_ROOT to the folder in which "
    "Phantom-FHE was built (docs/backend-phantom.md); --engine sim simulates the program without "
    "either",
}
"""The engines of the C++ runtime, each with the remedy for a failed build. A project has the
sources of all engines, and links one."""


def sources(program: Module, parameters: ParameterSet, engine: str = "sim") -> dict[str, str]:
    """Path in the project -> content of each generated file; the same program gives the same bytes.

    Args:
        program: ckks module with levels and a plan of rotations.
        parameters: parameter set that the program was lowered for.
        engine: one of ``ENGINES``; the project links it unless CMake is told otherwise.

    Raises:
        AtlasError: the engine does not exist, or cannot have these parameters; or the program has
            no plan of rotations.
    """
    _require_engine(engine, program, parameters)
    identity, arrays = identity_of(program), program.arrays_used()
    _, facts = program_content(program, identity, parameters, arrays)
    return _sources(program, parameters, engine, facts["sha256"])


def _require_engine(engine: str, program: Module, parameters: ParameterSet) -> None:
    if states_of(program):
        raise AtlasError(
            "the step and the prefill of a decoder cannot be emitted yet",
            why="client and server of a C++ project keep nothing from run to run",
            remedy="use atlasc generate",
        )
    if engine not in ENGINES:
        raise AtlasError(f"there is no engine {engine!r}", remedy=f"use {' or '.join(ENGINES)}")
    if engine != "sim" and not parameters.in_runtime:
        raise AtlasError(
            f"the program was not compiled for the engine {engine}",
            why="its parameters do not name any moduli",
            remedy="compile the model again with --target cpu or phantom",
        )


def _sources(program: Module, parameters: ParameterSet, engine: str, digest: str) -> dict[str, str]:
    """``digest``: the SHA-256 of the text of the program's file."""
    calls = Functions(program, EngineParameters.of(parameters)).named()
    environment = templates("atlasc.emit")
    environment.filters |= {
        "variable": text.variable, "comment": text.comment, "quoted": text.string
    }  # fmt: skip
    facts = {
        "name": text.identifier(program.name),
        "engine": engine,
        "text": digest,
        "outputs": [op.attributes for op in program.outputs],
        "program": program_text(program, calls),
    }
    paths = ["CMakeLists.txt", "README.md", *(f"src/{name}" for name in SOURCES)]
    return {
        path: environment.get_template(f"{Path(path).name}.jinja").render(facts) for path in paths
    }


def write_project(
    folder: Path,
    program: Module,
    parameters: ParameterSet,
    engine: str = "sim",
    file: Path | None = None,
) -> None:
    """Write a new folder, which appears whole or not at all.

    Args:
        folder, program, parameters, engine: see :func:`sources`.
        file: the program's file in a bundle, which is copied; None: it is made.

    Raises:
        AtlasError: as :func:`sources`; the folder exists or cannot be written; the program asks
            for an input in the clear that is neither a mask nor a position.
    """
    _require_engine(engine, program, parameters)
    require_listed(interface_of(program))
    with new_folder(folder) as draft:
        place = draft / PROGRAM
        if file is None:
            arrays = program.arrays_used()
            write_program(place, program, identity_of(program), parameters, arrays)
        else:
            shutil.copyfile(file, place)
        known = TensorFile(place).metadata  # has the identity, for which all weights are read
        write_interface(draft / INTERFACE, program, known["program"], parameters, key_plan(program))
        files = _sources(program, parameters, engine, known["sha256"])
        for path, content in files.items():
            (draft / path).parent.mkdir(exist_ok=True)
            (draft / path).write_text(content, encoding="utf-8")
        for part in RUNTIME_PARTS:
            copy = shutil.copytree if (RUNTIME / part).is_dir() else shutil.copyfile
            (draft / "runtime").mkdir(exist_ok=True)
            copy(RUNTIME / part, draft / "runtime" / part)


def save_inputs(
    path: Path, client: ClientProgram, arrays: Mapping[str, np.ndarray], doubt: str = ""
) -> None:
    """Write the embedded inputs that the C++ client encrypts: a safetensors file, float64 by name,
    one row for each input. Only the owner may read the file.

    Args:
        path: place of the file.
        client: the client's side of the program.
        arrays: raw inputs by name, at most a batch.
        doubt: why the bound on the errors may not hold for these inputs; the C++ client notes it
            with the query.

    Raises:
        AtlasError: the inputs are refused, or more than one batch.
    """
    from safetensors.numpy import save_file

    prepared = client.prepare(arrays)
    rows = {n: np.ascontiguousarray(a, dtype=np.float64) for n, a in prepared.items()}
    write_private(path, lambda draft: save_file(rows, draft, {"doubt": noted(doubt)}))


# --- building


def build_options(python: bool = False) -> list[str]:
    """CMake options of a build; with ``python`` it makes a module for this Python interpreter.

    Raises:
        AtlasError: CMake, a C++ compiler or pybind11 is missing.
    """
    if shutil.which("cmake") is None:
        raise AtlasError(
            "CMake was not found",
            why="CMake builds an emitted project",
            remedy="install cmake (3.16 or newer), or build the project on another machine",
        )
    compiler = os.environ.get("CXX")
    wanted = [compiler] if compiler else COMPILERS
    if not any(map(shutil.which, wanted)):
        missing = f"the C++ compiler {compiler} was not" if compiler else "no C++ compiler was"
        raise AtlasError(
            f"{missing} found",
            why="none of these was found: " + ", ".join(wanted),
            remedy="install a C++ compiler, or set CXX to its path",
        )
    if not python:
        return []
    try:
        import pybind11
    except ImportError:
        raise AtlasError(
            "pybind11 was not found",
            why="the Python module of an emitted project needs it",
            remedy="pip install pybind11",
        ) from None
    return [
        "-DATLASC_PYTHON=ON",
        "-DPYBIND11_FINDPYTHON=ON",  # otherwise CMake takes the first Python on the path
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]


def build_project(folder: Path, engine: str, options: Sequence[str]) -> Path:
    """Build the project in ``folder/build``, and return that folder with the executables.

    Args:
        folder: folder that :func:`write_project` wrote.
        engine: the engine that the project was written for.
        options: the result of :func:`build_options`.

    Raises:
        AtlasError: the build failed; the error shows the end of its output.
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
