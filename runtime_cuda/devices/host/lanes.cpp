#include "devices/host/lanes.hpp"

// GCC 12 takes the undefined operands of its own intrinsics for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vbmi,avx512ifma")
#include "devices/host/ifma.hpp"

namespace atlasc::ckks::lanes {
namespace {

inline Root root_of(Word value, Word q) {
    return {all(value), all(static_cast<Word>((static_cast<Wide>(value) << 52) / q))};
}

/// Reduces numbers of 104 bits and more: high 2^52 + low, for high below 2^52.
struct Reduction {
    explicit Reduction(Word q)
        : modulus(q), one(root_of(1, q)), high(root_of((Word{1} << 52) % q, q)) {}

    Vector operator()(Vector upper, Vector lower) const {
        upper = _mm512_add_epi64(upper, _mm512_srli_epi64(lower, 52));
        lower = _mm512_and_si512(lower, modulus.mask);
        const Vector sum =
            _mm512_add_epi64(lazy(upper, high, modulus), lazy(lower, one, modulus));
        return below(below(sum, modulus.twice), modulus.q);
    }

    Modulus modulus;
    Root one;
    Root high;
};

/// A sum of products of numbers below 2^52, at most 2^11 of them.
struct Sum {
    Vector upper;
    Vector lower;

    Sum() : upper(_mm512_setzero_si512()), lower(_mm512_setzero_si512()) {}

    void add(Vector a, Vector b) {
        upper = _mm512_madd52hi_epu64(upper, a, b);
        lower = _mm512_madd52lo_epu64(lower, a, b);
    }
};

inline Vector sum_of(Vector a, Vector b, const Modulus& m) {
    return below(_mm512_add_epi64(a, b), m.q);
}

inline Vector difference_of(Vector a, Vector b, const Modulus& m) {
    return below(_mm512_add_epi64(_mm512_sub_epi64(a, b), m.q), m.q);
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

/// Runs have eight values or more, or one.
inline Vector eight(const PlainValues& values, std::size_t at) {
    return values.log_run == 0 ? load(values.words + at) : all(values[at]);
}

}  // namespace

void add(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        store(out + at, sum_of(load(a + at), load(b + at), m));
    }
}

void subtract(Word* out, const Word* a, const Word* b, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        store(out + at, difference_of(load(a + at), load(b + at), m));
    }
}

void multiply(Word* out, const Word* a, const PlainValues& b, std::size_t length, const Prime& q) {
    const Reduction reduced(q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        Sum total;
        total.add(load(a + at), eight(b, at));
        store(out + at, reduced(total.upper, total.lower));
    }
}

void times_number(Word* out, const Word* a, Word factor, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    const Root root = root_of(factor, q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        store(out + at, below(lazy(load(a + at), root, m), m.q));
    }
}

void add_product(Word* const (&d)[3], const Word* const (&a)[2], const Word* const (&b)[2],
                 std::size_t length, bool first, const Prime& q) {
    const Reduction reduced(q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        Sum sums[3];
        for (int part = 0; !first && part < 3; ++part) {
            sums[part].lower = load(d[part] + at);
        }
        const Vector a0 = load(a[0] + at);
        const Vector a1 = load(a[1] + at);
        const Vector b0 = load(b[0] + at);
        const Vector b1 = load(b[1] + at);
        sums[0].add(a0, b0);
        sums[1].add(a0, b1);
        sums[1].add(a1, b0);
        sums[2].add(a1, b1);
        for (int part = 0; part < 3; ++part) {
            store(d[part] + at, reduced(sums[part].upper, sums[part].lower));
        }
    }
}

void divide(Word* out, const Word* values, const Word* minuend, Word factor, std::size_t length,
            const Prime& q) {
    const Modulus m(q.value);
    const Root root = root_of(factor, q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        const Vector difference = difference_of(load(values + at), load(minuend + at), m);
        store(out + at, below(lazy(difference, root, m), m.q));
    }
}

void lift(Word* out, const Word* in, std::size_t length, const Prime& from, const Prime& to) {
    const Modulus m(to.value);
    const Root one = root_of(1, to.value);
    const Vector half = all(from.value / 2);
    const Vector whole = all(from.value);
    for (std::size_t at = 0; at < length; at += 8) {
        const Vector x = load(in + at);
        const __mmask8 negative = _mm512_cmpgt_epu64_mask(x, half);
        const Vector size = _mm512_mask_sub_epi64(x, negative, whole, x);
        const Vector residue = below(lazy(size, one, m), m.q);
        const Vector opposite = below(_mm512_sub_epi64(m.q, residue), m.q);
        store(out + at, _mm512_mask_mov_epi64(residue, negative, opposite));
    }
}

void residues(Word* out, const double* integers, std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    const Root one = root_of(1, q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        const __m512d number = _mm512_loadu_pd(integers + at);
        const __mmask8 negative = _mm512_cmp_pd_mask(number, _mm512_setzero_pd(), _CMP_LT_OQ);
        const Vector size = _mm512_cvtpd_epu64(_mm512_abs_pd(number));
        const Vector residue = below(lazy(size, one, m), m.q);
        const Vector opposite = below(_mm512_sub_epi64(m.q, residue), m.q);
        store(out + at, _mm512_mask_mov_epi64(residue, negative, opposite));
    }
}

void inner_product(Word* b, Word* a, const Word* x, std::size_t digit_stride, const Packed& key,
                   std::size_t key_stride, std::size_t digits, const Addends& addends,
                   std::size_t length, const Prime& q) {
    const Reduction reduced(q.value);
    const Vector factor = all(addends.factor);
    const Unpacking unpacking(key.bits);
    for (std::size_t at = 0; at < length; at += 8) {
        Sum first;
        Sum second;
        for (std::size_t digit = 0; digit < digits; ++digit) {
            const Vector value = load(x + digit * digit_stride + at);
            const Word* parts = key.words + 2 * digit * key_stride;
            first.add(value, unpacking(parts, key.first + at));
            second.add(value, unpacking(parts + key_stride, key.first + at));
        }
        if (addends.first != nullptr) {
            first.add(load(addends.first + at), factor);
        }
        if (addends.second != nullptr) {
            second.add(load(addends.second + at), factor);
        }
        store(b + at, reduced(first.upper, first.lower));
        store(a + at, reduced(second.upper, second.lower));
    }
}

void permute(Word* out, const Word* in, const std::uint32_t* from, bool accumulate,
             std::size_t length, const Prime& q) {
    const Modulus m(q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        Vector x;
        if (from == nullptr) {
            x = load(in + at);
        } else {
            const Vector places = _mm512_cvtepu32_epi64(
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at)));
            // A permutation reads the lowest three bits of a place.
            x = _mm512_permutexvar_epi64(places, load(in + from[at] / 8 * 8));
        }
        store(out + at, accumulate ? sum_of(x, load(out + at), m) : x);
    }
}

void sum_of_products(Word* out, const Term* terms, std::size_t count, bool accumulate,
                     std::size_t length, const Prime& q) {
    const Reduction reduced(q.value);
    for (std::size_t at = 0; at < length; at += 8) {
        Sum total;
        total.lower = accumulate ? load(out + at) : total.lower;
        for (std::size_t term = 0; term < count; ++term) {
            total.add(load(terms[term].x + at), eight(terms[term].plain, at));
        }
        store(out + at, reduced(total.upper, total.lower));
    }
}

void scale(Word* y, double* sum, const Word* x, Word inverse, std::size_t length,
           const Prime& q) {
    const Modulus m(q.value);
    const Root root = root_of(inverse, q.value);
    const __m512d whole = _mm512_set1_pd(static_cast<double>(q.value));
    for (std::size_t at = 0; at < length; at += 8) {
        const Vector scaled = below(lazy(load(x + at), root, m), m.q);
        const __m512d share = _mm512_div_pd(_mm512_cvtepu64_pd(scaled), whole);
        store(y + at, scaled);
        _mm512_storeu_pd(sum + at, _mm512_add_pd(_mm512_loadu_pd(sum + at), share));
    }
}

void combine(Word* out, const Word* y, std::size_t row, std::size_t size, const Word* hats,
             std::size_t stride, const Word* u, Word minus, std::size_t length, const Prime& q) {
    const Reduction reduced(q.value);
    const Vector negative = all(minus);
    for (std::size_t at = 0; at < length; at += 8) {
        Sum total;
        total.add(load(u + at), negative);
        for (std::size_t s = 0; s < size; ++s) {
            total.add(load(y + s * row + at), all(hats[s * stride]));
        }
        store(out + at, reduced(total.upper, total.lower));
    }
}

namespace {

inline Vector same_word(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }

template <int bits>
inline void turn(Vector& x, Vector by) {
    x = _mm512_rol_epi32(_mm512_xor_si512(x, by), bits);
}

inline void quarter(Vector& a, Vector& b, Vector& c, Vector& d) {
    a = _mm512_add_epi32(a, b);
    turn<16>(d, a);
    c = _mm512_add_epi32(c, d);
    turn<12>(b, c);
    a = _mm512_add_epi32(a, b);
    turn<8>(d, a);
    c = _mm512_add_epi32(c, d);
    turn<7>(b, c);
}

}  // namespace

void chacha20(std::uint32_t (&words)[16][16], const Seed& seed, std::uint32_t counter,
              std::uint32_t step, const std::uint32_t (&nonce)[3]) {
    alignas(64) std::uint32_t counters[16];
    for (std::uint32_t block = 0; block < 16; ++block) {
        counters[block] = counter + block * step;
    }
    Vector start[16];
    const std::uint32_t constants[4] = {0x61707865U, 0x3320646eU, 0x79622d32U, 0x6b206574U};
    for (int at = 0; at < 4; ++at) {
        start[at] = same_word(constants[at]);
    }
    for (int at = 0; at < 8; ++at) {
        start[4 + at] = same_word(seed.words[at]);
    }
    start[12] = _mm512_load_si512(counters);
    for (int at = 0; at < 3; ++at) {
        start[13 + at] = same_word(nonce[at]);
    }
    Vector x[16];
    for (int at = 0; at < 16; ++at) {
        x[at] = start[at];
    }
    for (int round = 0; round < 10; ++round) {
        quarter(x[0], x[4], x[8], x[12]);
        quarter(x[1], x[5], x[9], x[13]);
        quarter(x[2], x[6], x[10], x[14]);
        quarter(x[3], x[7], x[11], x[15]);
        quarter(x[0], x[5], x[10], x[15]);
        quarter(x[1], x[6], x[11], x[12]);
        quarter(x[2], x[7], x[8], x[13]);
        quarter(x[3], x[4], x[9], x[14]);
    }
    for (int at = 0; at < 16; ++at) {
        _mm512_storeu_si512(words[at], _mm512_add_epi32(x[at], start[at]));
    }
}

}  // namespace atlasc::ckks::lanes
#pragma GCC pop_options
#pragma GCC diagnostic pop
