// What a parameter set may have at most. Arrays of fixed size have these lengths, and `chain_of`
// refuses every set that goes beyond them: both read this file.
//
// atlasc/targets/limits.py has the same numbers; a test compares them.
#pragma once

#include <cstddef>

namespace atlasc::ckks {

/// log2 of the ring degree N. Transforms are made for these.
constexpr int least_log_degree = 11;
constexpr int most_log_degree = 17;

/// Primes of Q, and so digits of a key.
constexpr std::size_t most_primes = 64;

/// Special primes.
constexpr std::size_t most_special = 8;

/// Primes of a digit, and of a divisor: those of a level and all special ones.
constexpr std::size_t most_in_block = 16;

/// Bits of a prime. Below 19 there is none for the largest ring; kernels unpack 16 or more.
constexpr int least_prime_bits = 20;
constexpr int most_prime_bits = 60;

/// Bits of the scale of a level of a bootstrap.
constexpr int most_scale_bits = 64;

/// Polynomials that a device transforms together.
constexpr std::size_t most_together = 16;

}  // namespace atlasc::ckks
