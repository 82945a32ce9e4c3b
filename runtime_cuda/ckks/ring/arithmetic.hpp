// Integers modulo primes of at most 60 bits, by the host and by kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "atlasc/base/exact_math.hpp"
#include "atlasc/base/qualifiers.hpp"

namespace atlasc::ckks {

using Word = std::uint64_t;
__extension__ typedef unsigned __int128 Wide;

/// A prime q and floor(2^128 / q) in two words (Barrett 1986).
struct Prime {
    Word value;
    Word ratio_low;
    Word ratio_high;
};

/// x mod q for any x: the quotient by the rounded ratio is at most one too small.
ATLASC_DEVICE inline Word reduce(Wide x, const Prime& q) {
    const Word low = static_cast<Word>(x);
    const Word high = static_cast<Word>(x >> 64);
    const Word carry = static_cast<Word>((static_cast<Wide>(low) * q.ratio_low) >> 64);
    const Wide first = static_cast<Wide>(low) * q.ratio_high + carry;
    const Wide second = static_cast<Wide>(high) * q.ratio_low + static_cast<Word>(first);
    const Word quotient = high * q.ratio_high + static_cast<Word>(first >> 64) +
                          static_cast<Word>(second >> 64);
    const Word rest = low - quotient * q.value;
    return rest >= q.value ? rest - q.value : rest;
}

ATLASC_DEVICE inline Word multiply(Word a, Word b, const Prime& q) {
    return reduce(static_cast<Wide>(a) * b, q);
}

ATLASC_DEVICE inline Word power(Word base, Word exponent, const Prime& q) {
    Word result = 1;
    for (; exponent != 0; exponent >>= 1, base = multiply(base, base, q)) {
        result = (exponent & 1) != 0 ? multiply(result, base, q) : result;
    }
    return result;
}

ATLASC_DEVICE inline Word add(Word a, Word b, const Prime& q) {
    const Word sum = a + b;
    return sum >= q.value ? sum - q.value : sum;
}

ATLASC_DEVICE inline Word subtract(Word a, Word b, const Prime& q) {
    return a >= b ? a - b : a + q.value - b;
}

ATLASC_DEVICE inline Word negate(Word a, const Prime& q) {
    return a == 0 ? 0 : q.value - a;
}

/// The residue modulo `to` of x modulo `from` as a number of [-from/2, from/2).
ATLASC_DEVICE inline Word lift(Word x, const Prime& from, const Prime& to) {
    return x > from.value / 2 ? negate(reduce(from.value - x, to), to) : reduce(x, to);
}

/// The lowest `bits` bits of x in reverse, 0 < bits <= 32.
ATLASC_DEVICE inline std::uint32_t reverse_bits(std::uint32_t x, int bits) {
    x = ((x >> 1) & 0x55555555U) | ((x & 0x55555555U) << 1);
    x = ((x >> 2) & 0x33333333U) | ((x & 0x33333333U) << 2);
    x = ((x >> 4) & 0x0f0f0f0fU) | ((x & 0x0f0f0f0fU) << 4);
    x = ((x >> 8) & 0x00ff00ffU) | ((x & 0x00ff00ffU) << 8);
    return ((x >> 16) | (x << 16)) >> (32 - bits);
}

/// Where the transform of m(X^galois) takes its value at `at` from in the transform of m.
///
/// The transform of a polynomial of degree N = 2^log_degree holds at i its value at
/// psi^(2 rev(i) + 1), with rev the reversal of log_degree bits.
ATLASC_DEVICE inline std::uint32_t permuted(std::uint32_t at, std::uint32_t galois,
                                            int log_degree) {
    const std::uint32_t exponent = galois * (2 * reverse_bits(at, log_degree) + 1);
    const std::uint32_t mask = (2U << log_degree) - 1;  // modulo 2N, the order of psi
    return reverse_bits((exponent & mask) >> 1, log_degree);
}

}  // namespace atlasc::ckks
