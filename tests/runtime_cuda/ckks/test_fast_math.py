"""Flags that change floating-point arithmetic: taken back, refused, seen by the build's check."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, ROOT, RUNTIME, Builder, require_compiler

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
FLAGS = ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-ffinite-math-only")
HEADER = '#include "atlasc/base/exact_math.hpp"\n'


def compiled(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [require_compiler(), *flags, f"-I{RUNTIME / 'include'}", "-fsyntax-only"]
    return subprocess.run(
        [*command, "-x", "c++", "-"], input=HEADER, capture_output=True, text=True
    )


@pytest.mark.parametrize("flag", FLAGS)
def test_every_file_refuses_them(flag: str) -> None:
    done = compiled(flag)
    assert done.returncode != 0 and "add -fno-fast-math" in done.stderr
    assert compiled(flag, "-fno-fast-math").returncode == 0
    assert compiled().returncode == 0


@pytest.mark.parametrize("engine", ["cpu", "sim"])
def test_cmake_takes_them_back(engine: str, tmp_path: Path) -> None:
    """CXXFLAGS come first, those of the project behind them."""
    require_compiler()
    told = f"-DATLASC_ENGINE={engine}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
    command = ["cmake", "-S", str(RUNTIME), "-B", str(tmp_path), *told]
    environment = os.environ | {"CXXFLAGS": "-ffast-math"}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    assert commands
    for one in commands:
        flags = one["command"].split()
        assert flags.index("-ffast-math") < flags.index("-fno-fast-math"), one["file"]


@pytest.mark.deep("projects")
@pytest.mark.parametrize("fast", [False, True])
def test_the_check_of_a_build_sees_wrong_kernels(cpp: Builder, fast: bool, tmp_path: Path) -> None:
    """The kernels of AVX2, compiled as a build that defeats the two guards above would."""
    require_compiler()
    host = RUNTIME / "devices" / "host"
    folders = [f"-I{one}" for one in (RUNTIME, RUNTIME / "include", host, ROOT)]
    flags = [*OPTIMISED, *folders]
    wrong = ["-ffast-math", "-U__FAST_MATH__", "-U__ASSOCIATIVE_MATH__", "-U__RECIPROCAL_MATH__"]
    wrong += ["-U__FINITE_MATH_ONLY__"]
    target = tmp_path / "check"
    kernels = cpp.object(target, host / "vectors/avx2.cpp", [*flags, *(wrong if fast else [])])
    sources = [host / "check_kernels.cpp"]
    sources += [host / f"vectors/{name}.cpp" for name in ("cpu", "ifma", "ntt")]
    sources += [RUNTIME / "src/base" / f"{name}.cpp" for name in ("error", "files", "system")]
    sources.append(PROGRAMS / "wrong_kernels.cpp")
    objects = [cpp.object(target, source, flags) for source in sources]
    linked = [require_compiler(), *map(str, (kernels, *objects)), "-o", str(target)]
    subprocess.run(linked, check=True)
    done = subprocess.run(
        [str(target)], capture_output=True, text=True, env=os.environ | {"ATLASC_CPU": "avx2"}
    )
    if "cannot run" in done.stdout:
        pytest.skip("needs a processor with AVX2")
    assert done.returncode == 0, done.stderr
    assert ("this build of the engine computes wrong numbers" in done.stdout) == fast, done.stdout
