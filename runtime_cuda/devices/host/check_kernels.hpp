// The check of a build: what its fast kernels compute is compared with plain integers.
#pragma once

#include <vector>

#include "ckks/ring/arithmetic.hpp"

namespace atlasc::ckks {

/// Every vector kernel of this processor, modulo each prime that has some. Throws Error: a kernel is
/// wrong, as where a compiler was told to rearrange floating-point arithmetic.
void check_kernels(const std::vector<Prime>& primes);

}  // namespace atlasc::ckks
