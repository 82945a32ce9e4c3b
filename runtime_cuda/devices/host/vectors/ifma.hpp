// Residues modulo primes below 2^50, eight at a time, by AVX-512 IFMA: products of 52 bits. For the
// file that is compiled for it: include this behind its `#pragma GCC target`.
//
// The loops of ntt_kernels.hpp and lanes_kernels.hpp are written with what is here, or with what
// has the same names in avx2.hpp.
#pragma once

#include <immintrin.h>

#include "ckks/ring/arithmetic.hpp"
#include "devices/host/vectors/ntt.hpp"

namespace atlasc::ckks::ifma {
namespace {

using Vector = __m512i;
constexpr std::size_t width = 8;

inline Vector load(const Word* from) { return _mm512_loadu_si512(from); }
inline void store(Word* to, Vector x) { _mm512_storeu_si512(to, x); }
inline Vector all(Word x) { return _mm512_set1_epi64(static_cast<long long>(x)); }

/// Numbers between two stages of a transform.
inline Vector load_lazy(const Word* from) { return load(from); }
inline void store_lazy(Word* to, Vector x) { store(to, x); }

inline Vector below(Vector x, Vector bound) { return _mm512_min_epu64(x, x - bound); }

/// Factors and their quotients, one for each lane.
struct Root {
    Vector value;
    Vector quotient;
};

inline Root all(const Factor& factor) { return {all(factor.value), all(factor.quotient)}; }
inline Root root_of(Word value, Word q) { return all(factor_of(value, q, Cpu::ifma)); }

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

/// x root modulo q, below 2q, for x below 2^52.
inline Vector lazy(Vector x, const Root& root, const Modulus& m) {
    const Vector zero = _mm512_setzero_si512();
    const Vector high = _mm512_madd52hi_epu64(zero, x, root.quotient);
    const Vector product = _mm512_madd52lo_epu64(zero, x, root.value);
    return _mm512_and_si512(_mm512_madd52lo_epu64(product, high, m.minus), m.mask);
}

/// x root modulo q, of x below 2^52.
inline Vector times(Vector x, const Root& root, const Modulus& m) {
    return below(lazy(x, root, m), m.q);
}

inline Vector sum_of(Vector a, Vector b, const Modulus& m) { return below(a + b, m.q); }
inline Vector difference_of(Vector a, Vector b, const Modulus& m) {
    return below(a - b + m.q, m.q);
}

inline Vector zero() { return _mm512_setzero_si512(); }

/// A residue as a sum of it and another one may be a factor of a product in a `LongSum`.
inline Vector addend(Vector x, const Modulus&) { return x; }

/// a - b modulo q, of numbers up to 2q: what `lazy` takes.
inline Vector lazy_difference(Vector a, Vector b, const Modulus& m) { return a - b + m.twice; }

/// In each stage of a transform, one of two numbers below 4q becomes one below 2q (backward: a sum
/// of numbers below 2q). Then none is left to become smaller in a pass of two stages.
inline Vector in_stage(Vector x, const Modulus& m) { return below(x, m.twice); }
inline Vector in_pass(Vector x, const Modulus&) { return x; }

/// The same for sums after a backward pass whose first stage is of halves of so many numbers.
inline Vector after_pass(Vector x, std::size_t, const Modulus&) { return x; }

/// What a transform leaves behind, below 4q.
inline Vector reduced(Vector x, const Modulus& m) { return below(below(x, m.twice), m.q); }

/// A prime below 2^42: transforms need not make numbers smaller, as 2^10 q is less than 2^52. Bits from
/// 2^52 on are not cleared between stages, since products do not read them.
struct Roomy : Modulus {
    /// `multiple` q is added to differences.
    Roomy(Word q, Word multiple) : Modulus(q), added(all(multiple * q)), one(root_of(1, q)) {}

    Vector added;
    Root one;
};

inline bool is_roomy(Word q) { return q >> 42 == 0; }

inline Vector lazy(Vector x, const Root& root, const Roomy& m) {
    const Vector zero = _mm512_setzero_si512();
    const Vector high = _mm512_madd52hi_epu64(zero, x, root.quotient);
    const Vector product = _mm512_madd52lo_epu64(zero, x, root.value);
    return _mm512_madd52lo_epu64(product, high, m.minus);
}

inline Vector lazy_difference(Vector a, Vector b, const Roomy& m) { return a - b + m.added; }
inline Vector in_stage(Vector x, const Roomy&) { return x; }

/// Forward, a stage adds a product, which is below 2q: 16 stages end below 33q.
constexpr Word forward_multiple = 2;
inline Vector reduced(Vector x, const Roomy& m) { return times(x, m.one, m); }

/// Backward, a stage doubles sums. Ten stages end below 2^10 q, where they become products; eight more
/// begin below 2^9 q.
constexpr Word backward_multiple = 512;
inline Vector after_pass(Vector x, std::size_t half, const Roomy& m) {
    return half == 256 ? lazy(x, m.one, m) : x;
}

/// Blocks of two vectors that a transform computes at once: as many as registers hold.
constexpr std::size_t blocks_at_once = 4;

/// Calls work with what transforms modulo q take.
template <typename Work>
inline void with_modulus(Word q, Word multiple, const Work& work) {
    is_roomy(q) ? work(Roomy(q, multiple)) : work(Modulus(q));
}

/// What sums of products take.
struct Reduction : Modulus {
    explicit Reduction(Word q)
        : Modulus(q), one(root_of(1, q)), high(root_of((Word{1} << 52) % q, q)) {}

    Root one;
    Root high;  ///< 2^52
};

/// A sum of products of numbers below 2^50. High halves are below 2^48, and their sum has to stay
/// below 2^52.
struct Sum {
    /// A sum takes so many products, and two more, before it is settled.
    static constexpr std::size_t most = 12;

    Sum() : upper(_mm512_setzero_si512()), lower(_mm512_setzero_si512()) {}

    /// A residue, at the start.
    void start(Vector x) { lower = x; }

    void add(Vector a, Vector b, const Reduction&) {
        upper = _mm512_madd52hi_epu64(upper, a, b);
        lower = _mm512_madd52lo_epu64(lower, a, b);
    }

    void settle(const Reduction& m) {
        lower = reduced(m);
        upper = _mm512_setzero_si512();
    }

    Vector reduced(const Reduction& m) const {
        return ifma::reduced(folded(upper + _mm512_srli_epi64(lower, 52), m), m);
    }

    /// 2^52 high + the lowest 52 bits of `lower`, below 4q: `lazy` products with 2^52 and with one, added
    /// up before their multiples of q are subtracted.
    Vector folded(Vector high, const Reduction& m) const {
        Vector quotient = _mm512_madd52hi_epu64(_mm512_setzero_si512(), high, m.high.quotient);
        quotient = _mm512_madd52hi_epu64(quotient, lower, m.one.quotient);
        const Vector product = _mm512_madd52lo_epu64(lower, high, m.high.value);
        return _mm512_and_si512(_mm512_madd52lo_epu64(product, quotient, m.minus), m.mask);
    }

    Vector upper;
    Vector lower;
};

/// What longer sums take.
struct LongReduction : Reduction {
    explicit LongReduction(Word q)
        : Reduction(q), top(root_of(power_of_two(104, q), q)) {}

    static Word power_of_two(int exponent, Word q) {
        return static_cast<Word>((static_cast<Wide>(1) << exponent) % q);
    }

    Root top;  ///< 2^104
};

/// A sum whose high halves may exceed 2^52, which costs more when it is reduced, and less until then:
/// low halves are below 2^52, and their sum has to stay below 2^64. Factors are below 2^51.
struct LongSum : Sum {
    static constexpr std::size_t most = 4000;

    void settle(const LongReduction& m) {
        lower = reduced(m);
        upper = _mm512_setzero_si512();
    }

    Vector reduced(const LongReduction& m) const {
        const Vector carried = upper + _mm512_srli_epi64(lower, 52);
        const Vector rest = lazy(_mm512_srli_epi64(carried, 52), m.top, m);
        return ifma::reduced(rest + below(folded(carried, m), m.twice), m);
    }
};

/// Numbers of any sign.
struct Signed {
    Vector size;
    __mmask8 negative;
};

inline Vector residue_of(const Signed& x, const Reduction& m) {
    const Vector residue = times(x.size, m.one, m);
    return _mm512_mask_mov_epi64(residue, x.negative, below(m.q - residue, m.q));
}

/// x - whole where x is above half.
inline Signed centred(Vector x, Vector half, Vector whole) {
    const __mmask8 negative = _mm512_cmpgt_epu64_mask(x, half);
    return {_mm512_mask_sub_epi64(x, negative, whole, x), negative};
}

/// Integers of less than 2^52.
inline Signed load_integers(const double* from) {
    const __m512d x = _mm512_loadu_pd(from);
    return {_mm512_cvtpd_epu64(_mm512_abs_pd(x)),
            _mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_LT_OQ)};
}

/// Adds x / q.
inline void add_quotient(double* to, Vector x, double q) {
    const __m512d quotient = _mm512_div_pd(_mm512_cvtepu64_pd(x), _mm512_set1_pd(q));
    _mm512_storeu_pd(to, _mm512_add_pd(_mm512_loadu_pd(to), quotient));
}

/// Numbers that lie where `from` says, of those from `start` on: eight neighbours, in some order.
inline Vector gather(const Word* in, const std::uint32_t* from, std::size_t start) {
    const Vector places = _mm512_cvtepu32_epi64(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    // A permutation reads the lowest three bits of a place.
    return _mm512_permutexvar_epi64(places, load(in + (from[0] / 8 * 8 - start)));
}

/// Eight packed residues are as many bytes as one has bits.
struct Unpacking {
    explicit Unpacking(std::size_t bits) : bits(bits) {
        alignas(64) unsigned char from[64];
        alignas(64) long long by[8];
        for (std::size_t lane = 0; lane < 8; ++lane) {
            for (std::size_t byte = 0; byte < 8; ++byte) {
                from[8 * lane + byte] = static_cast<unsigned char>(lane * bits / 8 + byte);
            }
            by[lane] = static_cast<long long>(lane * bits % 8);
        }
        places = _mm512_load_si512(from);
        shifts = _mm512_load_si512(by);
        mask = all((Word{1} << bits) - 1);
        bytes = (__mmask64{1} << bits) - 1;
    }

    /// For a place that is a multiple of 8.
    Vector operator()(const Word* words, std::size_t at) const {
        const auto* start = reinterpret_cast<const unsigned char*>(words) + at / 8 * bits;
        const Vector read = _mm512_maskz_loadu_epi8(bytes, start);
        const Vector lanes = _mm512_permutexvar_epi8(places, read);
        return _mm512_and_si512(_mm512_srlv_epi64(lanes, shifts), mask);
    }

    std::size_t bits;
    Vector places;
    Vector shifts;
    Vector mask;
    __mmask64 bytes;
};

/// x and y are cut into pieces of `half` numbers: x gets the even pieces of both, by turns, and y
/// the odd ones. Done twice, it changes nothing.
template <int half>
inline void trade(Vector& x, Vector& y) {
    const Vector a = x;
    if constexpr (half == 4) {
        x = _mm512_shuffle_i64x2(a, y, 0x44);
        y = _mm512_shuffle_i64x2(a, y, 0xee);
    } else if constexpr (half == 2) {
        x = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), y);
        y = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), y);
    } else {
        x = _mm512_unpacklo_epi64(a, y);
        y = _mm512_unpackhi_epi64(a, y);
    }
}

/// All numbers by turns from x and y, and the way back.
inline void interleave(Vector& x, Vector& y) {
    const Vector a = x;
    x = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), y);
    y = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), y);
}
inline void deal(Vector& x, Vector& y) {
    const Vector a = x;
    x = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), y);
    y = _mm512_permutex2var_epi64(a, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), y);
}

/// One root of a table.
inline Root same(const Roots& roots, std::size_t at) {
    return {all(roots.values[at]), all(roots.quotients[at])};
}

template <int half>
inline Vector spread(const Word* from) {
    if constexpr (half == 4) {
        const __m128i two = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1),
                                        _mm512_castsi128_si512(two));
    } else if constexpr (half == 2) {
        const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                        _mm512_castsi256_si512(four));
    } else {
        return load(from);
    }
}

/// Neighbouring roots of a table, each for `half` lanes.
template <int half>
inline Root spread(const Roots& roots, std::size_t at) {
    return {spread<half>(&roots.values[at]), spread<half>(&roots.quotients[at])};
}

}  // namespace
}  // namespace atlasc::ckks::ifma
