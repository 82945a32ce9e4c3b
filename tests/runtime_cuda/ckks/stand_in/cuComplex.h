// The part of CUDA's cuComplex.h that the engine uses, on the host.
#pragma once

struct cuDoubleComplex {
    double x;
    double y;
};

inline cuDoubleComplex make_cuDoubleComplex(double x, double y) { return {x, y}; }
