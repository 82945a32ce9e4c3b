"""Common parts of the targets on atlasc's own CKKS engine: parameters, limits, C++ projects."""
