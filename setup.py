"""Builds the native kernels of approximations; everything else is declared in pyproject.toml."""

from pybind11.setup_helpers import Pybind11Extension
from setuptools import setup

setup(
    ext_modules=[
        Pybind11Extension(
            "atlasc.passes.approximation._native",
            [
                "atlasc/passes/approximation/native/chebyshev.cpp",
                "atlasc/passes/approximation/native/row_programs.cpp",
            ],
            depends=["atlasc/passes/approximation/native/chebyshev.hpp"],
            cxx_std=17,
            # The kernel picks its instruction set at run time, so a wheel fits every machine.
            extra_compile_args=["-O3", "-pthread"],
            extra_link_args=["-pthread"],
            # Without a compiler the package still installs and evaluates with numpy, only slower.
            optional=True,
        )
    ]
)
