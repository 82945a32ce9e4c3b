"""Builds C++ for tests: with two sets of flags, so that objects can be shared (compiler_cache)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compiler_cache
import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime_cuda"
SECONDS = 900
"""After which a compiler or a program is taken for stuck."""

WARNINGS = ("-Wall", "-Wextra", "-Werror")
OPTIMISED = ("-O1", *WARNINGS, "-Wpedantic", "-fPIC", "-std=gnu++17")
"""Flags of everything whose numbers are tested; the dialect is the one that CMake chooses,
and with ``-fPIC`` the objects serve Python modules too."""
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SANITIZED = ("-Og", *SANITIZERS, *WARNINGS, "-std=c++17")
"""Flags of everything whose memory is watched."""
WATCHED = ("-O1", "-fsanitize=thread", *WARNINGS, "-std=c++17")
"""Flags of everything whose threads are watched."""


def require_compiler() -> str:
    """The C++ compiler; skips the test where there is none, or no CMake."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None or shutil.which("cmake") is None:
        pytest.skip("needs CMake and a C++17 compiler: named in CXX, or g++, or c++")
    return compiler


class Builder:
    """A compiler whose objects are kept in a folder."""

    def __init__(self, folder: Path) -> None:
        compiler_cache.remove_old(folder)
        script = str(Path(compiler_cache.__file__))
        self.launcher = (sys.executable, "-I", "-S", script, str(folder.resolve()))

    def program(
        self, target: Path, sources: Iterable[Path], flags: Sequence[str] = OPTIMISED
    ) -> Path:
        """An executable of sources and archives; CUDA is compiled as C++, warnings are errors."""

        def compiled(source: Path) -> str:
            return str(source) if source.suffix == ".a" else str(self.object(target, source, flags))

        with ThreadPoolExecutor(2) as pool:
            objects = [*pool.map(compiled, sources)]
        linked = [flag for flag in flags if not flag.startswith("-I")]
        _succeed([require_compiler(), *linked, *objects, "-o", str(target)])
        return target

    def object(self, target: Path, source: Path, flags: Sequence[str]) -> Path:
        """The object of a source, beside ``target``."""
        place = target.with_name(f"{target.name}-{source.parent.name}-{source.name}.o")
        language = ("-x", "c++") if source.suffix == ".cu" else ()
        command = [*self.launcher, require_compiler(), *flags, *language, "-c", str(source)]
        _succeed([*command, "-o", str(place)])
        return place

    def environment(self, flags: Sequence[str]) -> dict[str, str]:
        """Variables under which CMake compiles with these flags."""
        return {
            "CXX": require_compiler(),
            "CXXFLAGS": " ".join(flags),
            "CMAKE_BUILD_TYPE": "None",
            "CMAKE_CXX_COMPILER_LAUNCHER": ";".join(self.launcher),
        }

    def cmake(self, source: Path, folder: Path, flags: Sequence[str], *options: str) -> Path:
        """The folder of a project, built; ``options`` of CMake."""
        environment = os.environ | self.environment(flags)
        extensions = f"-DCMAKE_CXX_EXTENSIONS={'ON' if '-std=gnu++17' in flags else 'OFF'}"
        named = ["cmake", "-S", str(source), "-B", str(folder), extensions, *options]
        _succeed(named, environment)
        _succeed(["cmake", "--build", str(folder), "--parallel", "2"], environment)
        return folder

    def runtime(self, folder: Path, flags: Sequence[str]) -> Path:
        """The archive of the runtime with the simulation engine."""
        return self.cmake(RUNTIME, folder, flags) / "libatlasc_runtime.a"


def _succeed(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
