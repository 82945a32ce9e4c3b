// Kernels of processors with AVX2 and FMA.
#include "devices/host/vectors/vector_kernels.hpp"

#ifdef ATLASC_X86

#include <algorithm>
#include <cstring>

// GCC 12 takes the undefined operands of its own intrinsics for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "devices/host/vectors/avx2.hpp"

namespace atlasc::ckks::avx2 {
#include "devices/host/vectors/ntt_kernels.hpp"
#include "devices/host/vectors/lanes_kernels.hpp"
}  // namespace atlasc::ckks::avx2
#pragma GCC pop_options
#pragma GCC diagnostic pop

#endif
