// Residues modulo primes below 2^50, eight at a time. For files that are compiled for AVX-512 IFMA:
// include it behind their `#pragma GCC target`.
#pragma once

#include <immintrin.h>

#include "ckks/arithmetic.hpp"

namespace atlasc::ckks {
namespace {

using Vector = __m512i;

inline Vector load(const Word* from) { return _mm512_loadu_si512(from); }
inline void store(Word* to, Vector x) { _mm512_storeu_si512(to, x); }
inline Vector all(Word x) { return _mm512_set1_epi64(static_cast<long long>(x)); }

struct Modulus {
    explicit Modulus(Word q)
        : q(all(q)),
          twice(all(2 * q)),
          minus(all((Word{1} << 52) - q)),
          mask(all((Word{1} << 52) - 1)) {}

    Vector q;
    Vector twice;
    Vector minus;  ///< -q modulo 2^52
    Vector mask;
};

/// Roots and their quotients, one for each lane.
struct Root {
    Vector value;
    Vector quotient;
};

inline Vector below(Vector x, Vector bound) {
    return _mm512_min_epu64(x, _mm512_sub_epi64(x, bound));
}

/// x root modulo q, below 2q, for x below 2^52.
inline Vector lazy(Vector x, const Root& root, const Modulus& m) {
    const Vector zero = _mm512_setzero_si512();
    const Vector high = _mm512_madd52hi_epu64(zero, x, root.quotient);
    const Vector product = _mm512_madd52lo_epu64(zero, x, root.value);
    return _mm512_and_si512(_mm512_madd52lo_epu64(product, high, m.minus), m.mask);
}

}  // namespace
}  // namespace atlasc::ckks
