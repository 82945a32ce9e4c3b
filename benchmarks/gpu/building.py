"""Builds the programs of an engine with CMake."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.gpu.commands import output_of
from benchmarks.gpu.machine import Machine, find_program
from benchmarks.gpu.outcome import Failed

SOURCE = Path(__file__).resolve().parent
LIMIT = 1800


def place_of(engine: str, machine: Machine, folder: Path) -> Path:
    """The folder of an engine's programs."""
    return folder / f"build-{engine}{machine.capability and '-' + machine.capability}"


def build(engine: str, machine: Machine, folder: Path, phantom: Path | None = None) -> None:
    """Build the programs of an engine for a machine, as far as they are not built.

    Args:
        engine: ``cuda`` or ``phantom``.
        folder: where builds and their logs lie.
        phantom: the folder of Phantom's sources.

    Raises:
        Failed: CMake, a compiler or Phantom is missing, or does not build.
    """
    if machine.missing:
        raise Failed(machine.missing)
    place = place_of(engine, machine, folder)
    options = [f"-DATLASC_ENGINE={engine}", f"-DEMULATED={'ON' if machine.emulated else 'OFF'}"]
    if not machine.emulated:
        options += [
            f"-DCMAKE_CUDA_ARCHITECTURES={machine.capability}",
            f"-DCMAKE_CUDA_COMPILER={machine.nvcc}",
        ]
    if engine == "phantom":
        assert phantom is not None
        _build_phantom(phantom, machine, folder)
        options.append(f"-DPhantom_ROOT={phantom.resolve()}")
    _cmake(SOURCE, place, options, machine, folder / f"{place.name}.log")


def _build_phantom(sources: Path, machine: Machine, folder: Path) -> None:
    """As docs/backend-phantom.md says."""
    if not (sources / "CMakeLists.txt").is_file():
        raise Failed(f"{sources} has no sources of Phantom")
    if any((sources / "build" / "lib").glob("libPhantom.*")):
        return
    options = [
        f"-DCMAKE_CUDA_ARCHITECTURES={machine.capability}",
        f"-DCMAKE_CUDA_COMPILER={machine.nvcc}",
        *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CUDA_RUNTIME_LIBRARY=Shared"),
        "-DPHANTOM_ENABLE_EXAMPLE=OFF",
    ]
    _cmake(sources, sources / "build", options, machine, folder / "build-of-phantom.log")


def _cmake(source: Path, place: Path, options: list[str], machine: Machine, log: Path) -> None:
    folder = log.parent
    folder.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    cmake, configure = find_program("cmake"), ("-S", source, "-B", place, *options)
    try:
        try:
            output_of([cmake, *configure], LIMIT, log=log)
        except Failed:
            if not (place / "CMakeCache.txt").exists():
                raise
            # The cache may be of another folder, or of a compiler that did not work.
            (place / "CMakeCache.txt").unlink()
            shutil.rmtree(place / "CMakeFiles", ignore_errors=True)
            output_of([cmake, *configure], LIMIT, log=log)
        output_of([cmake, "--build", place, "--parallel", machine.threads], LIMIT, log=log)
    except Failed as failed:
        raise Failed(f"{failed} ({log})") from None
