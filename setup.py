"""Builds what is written in C++; everything else is declared in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

import pybind11
from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import Extension, setup
from setuptools.errors import CompileError

RUNTIME = Path(__file__).parent / "atlasc" / "runtime_cuda"
ENGINE = os.environ.get("ATLASC_ENGINE", "cpu")
"""The engine that encrypts: ``cpu``, or ``cuda`` or ``phantom`` where CUDA is (docs/runtime.md)."""


class BuildWithCMake(build_ext):
    """The runtime is built by its CMake files, as emitted projects are."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension; the runtime by CMake."""
        if ext.name != NATIVE.name:
            super().build_extension(ext)
            return
        build = Path(self.build_temp).resolve() / "runtime"
        output = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        _cmake(
            *("-S", RUNTIME, "-B", build, "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DATLASC_ENGINE={ENGINE}", "-DATLASC_NATIVE=ON", "-DPYBIND11_FINDPYTHON=ON"),
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={output}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        )
        _cmake("--build", build, "--target", "_native", "--parallel", os.cpu_count() or 1)


def _cmake(*arguments: object) -> None:
    """CMake of the package on PyPI, which is there in every build environment."""
    done = subprocess.run([sys.executable, "-m", "cmake", *map(str, arguments)])
    if done.returncode:
        raise CompileError("the runtime could not be built")


APPROXIMATION = Pybind11Extension(
    "atlasc.polynomials._native",
    [
        "atlasc/polynomials/native/chebyshev.cpp",
        "atlasc/polynomials/native/row_programs.cpp",
    ],
    depends=["atlasc/polynomials/native/chebyshev.hpp"],
    cxx_std=17,
    # The kernel picks its instruction set at run time, so a wheel fits every machine.
    # Sums stay as they are written, whatever CXXFLAGS say.
    extra_compile_args=["-O3", "-pthread", "-fno-fast-math"],
    extra_link_args=["-pthread"],
    # Without a compiler the package still installs and evaluates with numpy, only slower.
    optional=True,
)
NATIVE = Extension(
    "atlasc.runtime._native",
    [],
    depends=[str(path) for path in sorted(RUNTIME.rglob("*")) if path.is_file()],
    # Without a compiler the package installs, and says what is missing when it is wanted. Whoever
    # asks for an engine gets it or an error.
    optional="ATLASC_ENGINE" not in os.environ,
)

setup(ext_modules=[APPROXIMATION, NATIVE], cmdclass={"build_ext": BuildWithCMake})
