"""The engine on Phantom, built for the CPU: CUDA and Phantom's transforms by stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
RUNTIME = ROOT / "runtime_cuda"
FLAGS = ("-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
FOLDERS = (HERE / "stand_in", HERE / "declarations", RUNTIME, RUNTIME / "include", ROOT)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds a program of C++ files with the runtime and the engine; warnings are errors.

    Address and undefined-behaviour sanitizers see the kernels, which are ordinary loops here.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++17 compiler: none named in CXX, no g++, no c++")
    objects_folder = tmp_path_factory.mktemp("stand-in")
    includes = [f"-I{one}" for one in FOLDERS]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

    def compiled(source: Path) -> Path:
        target = objects_folder / f"{source.parent.name}-{source.name}.o"
        if not target.exists():
            command = [compiler, *FLAGS, *checks, *includes, "-x", "c++", "-c", source]
            done = subprocess.run(
                [*map(str, command), "-o", str(target)], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        return target

    def program(name: str, *sources: Path) -> Path:
        engine = [
            path
            for path in (RUNTIME / "engines/phantom").iterdir()
            if path.suffix in (".cpp", ".cu")
        ]
        runtime = [*RUNTIME.glob("src/*.cpp"), *RUNTIME.glob("bootstrap/*.cpp")]
        files = [*sources, *engine, *runtime, HERE / "stand_in/phantom.cpp"]
        with ThreadPoolExecutor(2) as pool:
            objects = [*pool.map(compiled, files)]
        target = objects_folder / name
        command = [compiler, *checks, *map(str, objects), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return target

    return program
