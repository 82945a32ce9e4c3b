// Kernels of processors with AVX-512 IFMA.
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
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vbmi,avx512ifma")
#include "devices/host/vectors/ifma.hpp"

namespace atlasc::ckks::ifma {
#include "devices/host/vectors/ntt_kernels.hpp"
#include "devices/host/vectors/lanes_kernels.hpp"
}  // namespace atlasc::ckks::ifma
#pragma GCC pop_options
#pragma GCC diagnostic pop

#endif
