// Slots and coefficients of CKKS in the clear (Cheon, Kim, Kim and Song 2017, section 2.2).
#pragma once

#include <vector>

#include "atlasc/engine.hpp"

namespace atlasc::sim {

/// The polynomial, real and of twice as many coefficients, whose values at the roots of unity
/// exp(i pi 5^j / N) are the slots. Their number is a power of two.
std::vector<double> polynomial_of(const ComplexVector& slots);

/// The inverse of `polynomial_of`.
ComplexVector slots_of(const std::vector<double>& polynomial);

}  // namespace atlasc::sim
