// What the scheme computes for every residue, as function objects: `launch` of the device's kernel.hpp
// calls them for all. A device may have a faster way for some of them.
#pragma once

#include <cmath>

#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks {

/// Which element of [part][limb][N] an index is.
struct Shape {
    int log_degree;
    std::uint32_t limbs;

    ATLASC_DEVICE std::uint32_t row(std::size_t at) const {
        return static_cast<std::uint32_t>(at >> log_degree);
    }
    ATLASC_DEVICE std::size_t limb(std::size_t at) const { return row(at) % limbs; }
    ATLASC_DEVICE std::size_t part(std::size_t at) const { return row(at) / limbs; }

    /// The same element where every part has `stored` limbs.
    ATLASC_DEVICE std::size_t in(std::size_t at, std::size_t stored) const {
        const std::size_t degree = std::size_t{1} << log_degree;
        return ((part(at) * stored + limb(at)) << log_degree) + (at & (degree - 1));
    }
};

/// The first limbs of each part of a polynomial that may have more.
struct Source {
    const Word* words;
    std::size_t limbs;
};

/// Every part times a plaintext: the element of the same limb and place.
struct TimesPolynomial {
    Shape shape;
    const Prime* primes;
    Source a;
    PlainValues plain;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at - ((shape.part(at) * shape.limbs) << shape.log_degree);
        out[at] = multiply(a.words[shape.in(at, a.limbs)], plain[place], primes[shape.limb(at)]);
    }
};

struct PlusPolynomial {
    Shape shape;
    const Prime* primes;
    Source a;
    PlainValues plain;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Word x = a.words[shape.in(at, a.limbs)];
        out[at] = shape.part(at) == 0 ? add(x, plain[at], primes[shape.limb(at)]) : x;
    }
};

/// Some sums of products of ciphertexts, which have two parts each, of ciphertexts times numbers, and
/// of a number: all parts of a place at once, so that operands are read once and a sum is written once.
struct Combine {
    static constexpr std::size_t most_sums = 5;
    static constexpr std::size_t most_products = 8;
    static constexpr std::size_t most_terms = 12;
    static constexpr std::size_t most_numbers = 320;  // kernels may have 4 KB of arguments
    static_assert(most_numbers >= 2 * most_primes, "a number for each limb, and of one term");

    struct Product {
        Source a;
        Source b;
    };
    struct Term {
        Source x;
        std::size_t parts;
    };
    struct Sum {
        std::uint32_t parts;
        std::uint32_t first_product;
        std::uint32_t products;  ///< end of its own
        std::uint32_t first_term;
        std::uint32_t terms;  ///< end
        bool accumulate;      ///< adds to what `out` holds
        Word times;           ///< the products: at most `Combination::most_times`
        Word* out;
    };

    int log_degree;
    std::uint32_t limbs;
    const Prime* primes;
    std::size_t sums;
    Sum sum[most_sums];
    Product product[most_products];
    Term term[most_terms];
    Word numbers[most_numbers];  ///< for each sum [limb] that is added, then [term][limb]

    /// The residues that are added to a sum, and those that a term of it is multiplied by.
    ATLASC_DEVICE const Word* constant(std::size_t of) const {
        return numbers + (of + sum[of].first_term) * limbs;
    }
    ATLASC_DEVICE const Word* factor(std::size_t of, std::size_t one) const {
        return numbers + (of + one + 1) * limbs;
    }

    ATLASC_DEVICE void operator()(std::size_t index) const {
        const auto row = static_cast<std::uint32_t>(index >> log_degree);
        const std::uint32_t of = row / limbs;
        const std::uint32_t limb = row % limbs;
        const std::size_t at = index - (static_cast<std::size_t>(of * limbs) << log_degree);
        const Sum& own = sum[of];
        // A constant has the same value at every root of unity.
        Wide sums[3] = {constant(of)[limb], 0, 0};
        for (std::uint32_t one = own.first_product; one < own.products; ++one) {
            const Source& a = product[one].a;
            const Source& b = product[one].b;
            const Word a0 = a.words[at];
            const Word a1 = a.words[at + (a.limbs << log_degree)];
            const Word b0 = b.words[at] * own.times;
            const Word b1 = b.words[at + (b.limbs << log_degree)] * own.times;
            // (a0 + a1 s) (b0 + b1 s)
            sums[0] += static_cast<Wide>(a0) * b0;
            sums[1] += static_cast<Wide>(a0) * b1 + static_cast<Wide>(a1) * b0;
            sums[2] += static_cast<Wide>(a1) * b1;
        }
        for (std::uint32_t one = own.first_term; one < own.terms; ++one) {
            const Source& x = term[one].x;
            const Word number = factor(of, one)[limb];
            for (std::size_t part = 0; part < 3; ++part) {  // constants: sums stay in registers
                if (part < term[one].parts) {
                    sums[part] +=
                        static_cast<Wide>(x.words[at + ((part * x.limbs) << log_degree)]) * number;
                }
            }
        }
        for (std::size_t part = 0; part < 3; ++part) {
            if (part < own.parts) {
                Word& out = own.out[at + ((part * limbs) << log_degree)];
                out = reduce(sums[part] + (own.accumulate ? out : 0), primes[limb]);
            }
        }
    }
};

/// (values - minuend) inverse, which is one number for each prime.
struct Divide {
    int log_degree;
    const Prime* primes;
    const Word* values;
    const Word* minuend;
    const Word* inverse;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const Prime& q = primes[limb];
        out[at] = multiply(subtract(values[at], minuend[at], q), inverse[limb], q);
    }
};

struct Lift {
    int log_degree;
    const Prime* primes;
    const Word* coefficients;
    std::size_t from;
    std::size_t first;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at & ((std::size_t{1} << log_degree) - 1);
        out[at] = lift(coefficients[place], primes[from], primes[first + (at >> log_degree)]);
    }
};

/// Position of an extended polynomial's limb among all primes.
ATLASC_DEVICE inline std::size_t prime_of(std::size_t limb, std::size_t limbs, std::size_t size_q) {
    return limb < limbs ? limb : size_q + limb - limbs;
}

/// Sums of ciphertexts, of two parts each, times plaintexts: of `extended` limbs, of which the first
/// are of Q.
struct SumOfProducts {
    static constexpr std::size_t most = 16;

    struct Term {
        Source x;
        PlainValues plain;
    };

    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    std::size_t extended;
    const Prime* primes;
    std::size_t count;
    Term terms[most];
    bool accumulate;  ///< adds to what `out` holds
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t part = (at >> log_degree) < extended ? 0 : 1;
        const std::size_t in_part = at - ((part * extended) << log_degree);
        const std::size_t limb = in_part >> log_degree;
        Wide sum = accumulate ? out[at] : 0;
        for (std::size_t term = 0; term < count; ++term) {
            const Source& x = terms[term].x;
            sum += static_cast<Wide>(x.words[((part * x.limbs) << log_degree) + in_part]) *
                   terms[term].plain[in_part];
        }
        out[at] = reduce(sum, primes[prime_of(limb, limbs, size_q)]);
    }
};

/// One value of each run.
struct Compress {
    int log_run;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const { out[at] = in[at << log_run]; }
};

/// Coefficients of some vectors rounded to integers: the real parts, then the imaginary ones.
struct Round {
    int log_degree;
    std::size_t limbs;      ///< of Q
    std::size_t extended;   ///< and special ones
    std::size_t size_q;
    const Prime* primes;
    std::size_t rest;  ///< coefficients whose place has one of these bits are 0
    const Complex* in;  ///< [vector][N/2]
    Word* out;          ///< [vector][limb][N]

    ATLASC_DEVICE void operator()(std::size_t index) const {
        const std::size_t vector = index >> log_degree;
        const std::size_t at = index - (vector << log_degree);
        const std::size_t half = std::size_t{1} << (log_degree - 1);
        const Complex* own = in + vector * half;
        const double part = at < half ? own[at].x : own[at - half].y;
        const double number = (at & rest) == 0 ? rint(part) : 0.0;
        double size = number < 0 ? -number : number;
        int shift = 0;
        while (size >= 0x1p63) {  // a scale of 2^92 is possible; halving is exact
            size *= 0.5;
            ++shift;
        }
        const Word mantissa = static_cast<Word>(size);
        for (std::size_t limb = 0; limb < extended; ++limb) {
            const Prime& q = primes[prime_of(limb, limbs, size_q)];
            Word residue = reduce(mantissa, q);
            for (int bit = 0; bit < shift; ++bit) {
                residue = add(residue, residue, q);
            }
            out[((vector * extended + limb) << log_degree) + at] =
                number < 0 ? negate(residue, q) : residue;
        }
    }
};

/// Of vectors in several places.
template <std::size_t most>
struct Rounds {
    Round of[most];
    std::size_t size;  ///< coefficients of each

    ATLASC_DEVICE void operator()(std::size_t at) const { of[at / size](at % size); }
};

}  // namespace atlasc::ckks
