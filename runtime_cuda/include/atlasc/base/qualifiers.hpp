// How functions that kernels call are declared, and arithmetic that they share with the host.
#pragma once

#include "atlasc/base/exact_math.hpp"

#ifdef __CUDACC__
#include <nv/target>
#define ATLASC_DEVICE __host__ __device__
#else
#define ATLASC_DEVICE
#endif

namespace atlasc {

/// x times y, rounded: what is added to it is added to the rounded product. nvcc would make one
/// operation of both, which the host's compiler may not (exact_math.hpp).
ATLASC_DEVICE inline double rounded_product(double x, double y) {
#ifdef __CUDACC__
    NV_IF_TARGET(NV_IS_DEVICE, (return __dmul_rn(x, y);), (return x * y;))
#else
    return x * y;
#endif
}

}  // namespace atlasc
