"""Writes the C++ project of a lowered program: sources, weights, and the runtime that it links."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from atlasc.emit import text
from atlasc.emit.interface import identity_of, interface_text, stored_arrays
from atlasc.emit.program import program_text
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.targets.parameters import ParameterSet

RUNTIME = Path(__file__).parents[1] / "runtime_cuda"
"""Sources of the C++ runtime, as they are installed."""
RUNTIME_PARTS = ("CMakeLists.txt", "include", "src", "bootstrap", "engines", "python")
SOURCES = ("interface.cpp", "program.hpp", "program.cpp", "client.cpp", "server.cpp", "python.cpp")
ENGINES = ("sim", "phantom")
"""Folders of ``runtime_cuda/engines``; a project has the sources of all, and links one."""
WEIGHTS = "weights.safetensors"


def sources(program: Module, parameters: ParameterSet, engine: str = "sim") -> dict[str, str]:
    """The generated files by their path in the project; the same program gives the same bytes.

    Args:
        program: ckks module with levels and a plan of rotations.
        parameters: what it was lowered for.
        engine: one of ``ENGINES``, which is linked unless CMake is told otherwise.

    Raises:
        AtlasError: there is no such engine, or it cannot have these parameters; the C++ runtime
            lacks an op or an attribute; the rotations are not planned.
    """
    _check_engine(engine, parameters)
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("atlasc.emit"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    facts: dict[str, Any] = {
        "name": text.identifier(program.name),
        "engine": engine,
        "interface": interface_text(program, parameters),
        "program": program_text(program),
    }
    paths = ["CMakeLists.txt", "README.md", *(f"src/{name}" for name in SOURCES)]
    return {
        path: environment.get_template(f"{Path(path).name}.jinja").render(facts) for path in paths
    }


def write_project(
    folder: Path, program: Module, parameters: ParameterSet, engine: str = "sim"
) -> None:
    """Write a new folder, which appears whole or not at all.

    Raises:
        AtlasError: as :func:`sources`; the folder exists or cannot be written.
    """
    from safetensors.numpy import save_file

    files = sources(program, parameters, engine)
    arrays = stored_arrays(program)
    with new_folder(folder) as draft:
        for path, content in files.items():
            (draft / path).parent.mkdir(exist_ok=True)
            (draft / path).write_text(content, encoding="utf-8")
        save_file(arrays, draft / WEIGHTS, {"program": identity_of(program)})
        for part in RUNTIME_PARTS:
            copy = shutil.copytree if (RUNTIME / part).is_dir() else shutil.copyfile
            (draft / "runtime").mkdir(exist_ok=True)
            copy(RUNTIME / part, draft / "runtime" / part)


def _check_engine(engine: str, parameters: ParameterSet) -> None:
    if engine not in ENGINES:
        raise AtlasError(f"there is no engine {engine!r}", remedy=f"use {' or '.join(ENGINES)}")
    if engine == "phantom" and not parameters.in_runtime:
        raise AtlasError(
            "the program was not compiled for the engine phantom",
            why="its parameters name no moduli",
            remedy="compile the model again with --target phantom",
        )
