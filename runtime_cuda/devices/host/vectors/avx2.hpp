// Residues modulo primes below 2^50, four at a time, by AVX2 and FMA: doubles hold the integers.
// For the file that is compiled for it: include this behind its `#pragma GCC target`.
//
// The names are those of ifma.hpp. A product x w is an exact sum of two doubles: h, which is x w
// rounded, and l = x w - h, which an FMA yields. With an integer c near x w / q,
//
//   x w - c q = (h - c q) + l,
//
// where an FMA yields h - c q. Both sums are integers below 2^53, by the bounds at `lazy` and `Sum`,
// and such integers are doubles: nothing is rounded.
#pragma once

#include <immintrin.h>

#include "ckks/ring/arithmetic.hpp"
#include "devices/host/vectors/ntt.hpp"

namespace atlasc::ckks::avx2 {
namespace {

using Vector = __m256d;
constexpr std::size_t width = 4;

inline Vector all(double x) { return _mm256_set1_pd(x); }
inline Vector all(Word x) { return all(static_cast<double>(static_cast<std::int64_t>(x))); }

inline __m256i load_words(const Word* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// Integers below 2^52 are the lowest bits of doubles from 2^52 on.
inline Vector from_words(__m256i x) {
    const Vector base = all(0x1p52);
    return _mm256_or_pd(_mm256_castsi256_pd(x), base) - base;
}

inline Vector load(const Word* from) { return from_words(load_words(from)); }
inline void store(Word* to, Vector x) {
    const Vector base = all(0x1p52);
    const Vector bits = _mm256_xor_pd(x + base, base);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castpd_si256(bits));
}

/// Numbers between two stages of a transform stay doubles in memory.
inline Vector load_lazy(const Word* from) { return _mm256_castsi256_pd(load_words(from)); }
inline void store_lazy(Word* to, Vector x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_castpd_si256(x));
}

struct Root {
    Vector value;
    Vector quotient;
};

inline Vector all_bits(Word x) {
    return _mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<long long>(x)));
}

inline Root all(const Factor& factor) {
    return {all_bits(factor.value), all_bits(factor.quotient)};
}
inline Root root_of(Word value, Word q) { return all(factor_of(value, q, Cpu::avx2)); }

struct Modulus {
    explicit Modulus(Word q) : q(all(q)), inverse(all(1.0 / static_cast<double>(q))) {}

    Vector q;
    Vector inverse;
};

/// The integer nearest to x y, |x y| <= 2^51: the FMA rounds x y + 1.5 2^52, which is between 2^52
/// and 2^53, where doubles are the integers.
inline Vector nearest(Vector x, Vector y) {
    const Vector base = all(0x1.8p52);
    return _mm256_fmadd_pd(x, y, base) - base;
}

/// x root modulo q, within 5/8 q of 0, for |x| < 4q.
///
/// The root w is within q/2 of 0, so |w/q| < 1/2, and the double next to it is at most 2^-55 away.
/// c = nearest(x, w/q) has |x w/q| <= 2q < 2^51, and |c - x w/q| <= 1/2 + 2^52 2^-55 = 5/8. As
/// |x w| < 2^101, |l| <= 2^47, and |h - c q| <= 5/8 q + 2^47 < 2^53.
inline Vector lazy(Vector x, const Root& root, const Modulus& m) {
    const Vector high = _mm256_mul_pd(x, root.value);
    const Vector low = _mm256_fmsub_pd(x, root.value, high);
    const Vector multiple = nearest(x, root.quotient);
    return _mm256_fnmadd_pd(multiple, m.q, high) + low;
}

/// x modulo q, within q/2 + 1 of 0, for |x| <= 2^53 and |x| <= 2^51 q: 1/q is off by at most
/// 2^-53 / q, and so x/q by at most 1/q.
inline Vector settled(Vector x, const Modulus& m) {
    return _mm256_fnmadd_pd(nearest(x, m.inverse), m.q, x);
}

/// From -q < x < q to [0, q). A zero of either sign is not below 0 and stays.
inline Vector residue(Vector x, const Modulus& m) {
    const Vector negative = _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_LT_OQ);
    return x + _mm256_and_pd(negative, m.q);
}

inline Vector times(Vector x, const Root& root, const Modulus& m) {
    return residue(lazy(x, root, m), m);
}

inline Vector sum_of(Vector a, Vector b, const Modulus& m) { return residue(a + b - m.q, m); }
inline Vector difference_of(Vector a, Vector b, const Modulus& m) { return residue(a - b, m); }
inline Vector lazy_difference(Vector a, Vector b, const Modulus&) { return a - b; }
inline Vector zero() { return _mm256_setzero_pd(); }
inline Vector addend(Vector x, const Modulus& m) { return x - m.q; }

/// In each stage of a transform nothing has to become smaller, and in a pass of two stages only the
/// numbers that are not products. In units of q:
///
/// Forward, a pass settles the two numbers that its first stage does not multiply, to 5/8; each
/// stage adds a product, 5/8, so it ends within 15/8. A first pass of one stage takes residues, and
/// ends within 13/8. The last three stages end within 15/8 + 3 (5/8) = 15/4, and multiply what is
/// within 25/8.
///
/// Backward, the first three stages are on residues. Sums of 2, 4 and 8 of them are not negative:
/// their differences are within 1, 2 and 4, and the last ones at most 8 q <= 2^53. Sums of 2 and 4
/// products are within 5/4 and 5/2, their differences too. What the third stage adds up is settled.
/// A pass of two stages so starts within 5/8; it multiplies differences within 5/4 and 5/2, and
/// settles sums, within 5/2.
///
/// So all that is multiplied is within 4, as `lazy` wants it.
inline Vector in_stage(Vector x, const Modulus&) { return x; }
inline Vector in_pass(Vector x, const Modulus& m) { return settled(x, m); }
inline Vector after_pass(Vector x, std::size_t, const Modulus& m) { return settled(x, m); }

inline Vector reduced(Vector x, const Modulus& m) { return residue(settled(x, m), m); }

/// Blocks of two vectors that a transform computes at once: as many as registers hold.
constexpr std::size_t blocks_at_once = 1;

/// Calls work with what transforms modulo q take.
constexpr Word forward_multiple = 1;
constexpr Word backward_multiple = 1;
template <typename Work>
inline void with_modulus(Word q, Word, const Work& work) {
    work(Modulus(q));
}

using Reduction = Modulus;

/// A sum of products a b, for a < 2^50 and b < q, each brought within 3/4 q of 0 by itself: h and
/// 1/q are off by a part of 2^-53 each, and so a b / q < 2^50 by 1/4 at most. Again |l| <= 2^47,
/// and |h - c q| < 2^53. Sums are exact up to 2^53 > 8q.
struct Sum {
    /// A sum takes so many products, and two more, before it is settled; with the residue that it
    /// starts from, it is within 8 (3/4) q + q.
    static constexpr std::size_t most = 6;

    Sum() : total(_mm256_setzero_pd()) {}

    void start(Vector x) { total = x; }

    void add(Vector a, Vector b, const Reduction& m) {
        const Vector high = _mm256_mul_pd(a, b);
        const Vector low = _mm256_fmsub_pd(a, b, high);
        const Vector multiple = nearest(high, m.inverse);
        total = total + (_mm256_fnmadd_pd(multiple, m.q, high) + low);
    }

    void settle(const Reduction& m) { total = settled(total, m); }

    Vector reduced(const Reduction& m) const { return avx2::reduced(total, m); }

    Vector total;
};

using LongReduction = Reduction;
using LongSum = Sum;

using Signed = Vector;

inline Vector residue_of(Signed x, const Reduction& m) { return reduced(x, m); }

inline Signed centred(Vector x, Vector half, Vector whole) {
    return x - _mm256_and_pd(_mm256_cmp_pd(x, half, _CMP_GT_OQ), whole);
}

inline Signed load_integers(const double* from) { return _mm256_loadu_pd(from); }

inline void add_quotient(double* to, Vector x, double q) {
    _mm256_storeu_pd(to, _mm256_loadu_pd(to) + _mm256_div_pd(x, all(q)));
}

inline Vector gather(const Word* in, const std::uint32_t* from, std::size_t start) {
    const auto word = [&](int lane) { return static_cast<long long>(in[from[lane] - start]); };
    return from_words(_mm256_setr_epi64x(word(0), word(1), word(2), word(3)));
}

/// Eight packed residues are as many bytes as one has bits. Of a pair of them, the second starts in
/// byte 7 at the latest, and 8 bytes hold a residue with the bits before it: 16 bytes hold both.
struct Unpacking {
    explicit Unpacking(std::size_t bits)
        : bits(bits), mask(_mm256_set1_epi64x(static_cast<long long>((Word{1} << bits) - 1))) {
        for (std::size_t lane = 0; lane < 8; ++lane) {
            const std::size_t pair = lane / 2;
            // No byte is read behind those of the eight.
            starts[pair] = std::min(2 * pair * bits / 8, bits - 16);
            for (std::size_t byte = 0; byte < 8; ++byte) {
                const std::size_t from = lane * bits / 8 + byte - starts[pair];
                places[lane / 4][lane % 4 * 8 + byte] =
                    static_cast<unsigned char>(from < 16 ? from : 0x80);  // 0x80 makes a zero
            }
            shifts[lane / 4][lane % 4] = static_cast<long long>(lane * bits % 8);
        }
    }

    /// For a place that is a multiple of 4.
    Vector operator()(const Word* words, std::size_t at) const {
        const auto* start = reinterpret_cast<const unsigned char*>(words) + at / 8 * bits;
        const std::size_t side = at / 4 % 2;
        const auto pair = [&](std::size_t number) {
            return _mm_loadu_si128(
                reinterpret_cast<const __m128i*>(start + starts[2 * side + number]));
        };
        const __m256i read = _mm256_set_m128i(pair(1), pair(0));
        const auto* from = reinterpret_cast<const __m256i*>(places[side]);
        const auto* by = reinterpret_cast<const __m256i*>(shifts[side]);
        const __m256i lanes = _mm256_srlv_epi64(
            _mm256_shuffle_epi8(read, _mm256_load_si256(from)), _mm256_load_si256(by));
        return from_words(_mm256_and_si256(lanes, mask));
    }

    std::size_t bits;
    __m256i mask;
    std::size_t starts[4];
    alignas(32) unsigned char places[2][32];
    alignas(32) long long shifts[2][4];
};

template <int half>
inline void trade(Vector& x, Vector& y) {
    const Vector a = x;
    if constexpr (half == 2) {
        x = _mm256_permute2f128_pd(a, y, 0x20);
        y = _mm256_permute2f128_pd(a, y, 0x31);
    } else {
        x = _mm256_unpacklo_pd(a, y);
        y = _mm256_unpackhi_pd(a, y);
    }
}

inline void interleave(Vector& x, Vector& y) {
    trade<1>(x, y);
    trade<2>(x, y);
}
inline void deal(Vector& x, Vector& y) {
    trade<2>(x, y);
    trade<1>(x, y);
}

inline Root same(const Roots& roots, std::size_t at) {
    return {all_bits(roots.values[at]), all_bits(roots.quotients[at])};
}

template <int half>
inline Vector spread(const Word* from) {
    if constexpr (half == 2) {
        const __m128i two = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        return _mm256_permute_pd(_mm256_castsi256_pd(_mm256_broadcastsi128_si256(two)), 0xc);
    } else {
        return load_lazy(from);
    }
}

template <int half>
inline Root spread(const Roots& roots, std::size_t at) {
    return {spread<half>(&roots.values[at]), spread<half>(&roots.quotients[at])};
}

}  // namespace
}  // namespace atlasc::ckks::avx2
