"""The engines `cuda` and `phantom`, measured on a GPU in minutes: `make gpu` (docs/gpu.md).

Only :mod:`benchmarks.gpu.prepare` and :mod:`benchmarks.gpu.text` import atlasc: all else runs where
nothing is installed but Python, CMake and CUDA.
"""
