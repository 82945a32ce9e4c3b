// What the scheme computes for every residue, as function objects: `launch` of the device's kernel.hpp
// calls them for all. A device may have a faster way for some of them.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>

#include "atlasc/base/error.hpp"
#include "ckks/ring/packing.hpp"

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

enum class Kind { sum, difference };

struct Combine {
    Shape shape;
    const Prime* primes;
    Source a;
    Source b;
    Kind kind;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[shape.limb(at)];
        const Word x = a.words[shape.in(at, a.limbs)];
        const Word y = b.words[shape.in(at, b.limbs)];
        out[at] = kind == Kind::sum ? add(x, y, q) : subtract(x, y, q);
    }
};

struct Negate {
    Shape shape;
    const Prime* primes;
    Source a;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        out[at] = negate(a.words[shape.in(at, a.limbs)], primes[shape.limb(at)]);
    }
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

struct TimesNumber {
    Shape shape;
    const Prime* primes;
    Source a;
    Residues number;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = shape.limb(at);
        out[at] = multiply(a.words[shape.in(at, a.limbs)], number.of[limb], primes[limb]);
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

/// A constant has the same value at every root of unity.
struct PlusNumber {
    Shape shape;
    const Prime* primes;
    Source a;
    Residues number;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = shape.limb(at);
        const Word x = a.words[shape.in(at, a.limbs)];
        out[at] = shape.part(at) == 0 ? add(x, number.of[limb], primes[limb]) : x;
    }
};

/// (a0 + a1 s) (b0 + b1 s) at one place of the two polynomials.
struct AddProduct {
    int log_degree;
    const Prime* primes;
    Source a;
    Source b;
    Source sum;
    Word* out;
    bool first;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Prime& q = primes[at >> log_degree];
        const Word a0 = a.words[at];
        const Word a1 = a.words[at + (a.limbs << log_degree)];
        const Word b0 = b.words[at];
        const Word b1 = b.words[at + (b.limbs << log_degree)];
        const std::size_t part = sum.limbs << log_degree;
        Wide d0 = static_cast<Wide>(a0) * b0;
        Wide d1 = static_cast<Wide>(a0) * b1 + static_cast<Wide>(a1) * b0;
        Wide d2 = static_cast<Wide>(a1) * b1;
        if (!first) {
            d0 += out[at];
            d1 += out[at + part];
            d2 += out[at + 2 * part];
        }
        out[at] = reduce(d0, q);
        out[at + part] = reduce(d1, q);
        out[at + 2 * part] = reduce(d2, q);
    }
};

/// (values - minuend) inverse, which is one number for each prime, of some parts.
struct Divide {
    int log_degree;
    std::size_t limbs;  ///< of a part
    const Prime* primes;
    const Word* values;
    std::size_t apart;  ///< words between parts of the values; those of the others follow each other
    const Word* minuend;
    const Word* inverse;
    Word* out;

    ATLASC_DEVICE std::size_t in_values(std::size_t at) const {
        const std::size_t part = (at >> log_degree) / limbs;
        return at + part * (apart - (limbs << log_degree));
    }

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = (at >> log_degree) % limbs;
        const Prime& q = primes[limb];
        out[at] = multiply(subtract(values[in_values(at)], minuend[at], q), inverse[limb], q);
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

/// Calls function(std::integral_constant of size): a block of primes stays in registers.
template <std::size_t size = 1, typename Function>
void with_size(std::size_t wanted, const Function& function) {
    if (wanted == size) {
        function(std::integral_constant<std::size_t, size>());
    } else if constexpr (size < most_in_block) {
        with_size<size + 1>(wanted, function);
    } else {
        throw Error("internal error: a block has " + std::to_string(wanted) + " primes");
    }
}

/// Position of an extended polynomial's limb among all primes.
ATLASC_DEVICE inline std::size_t prime_of(std::size_t limb, std::size_t limbs, std::size_t size_q) {
    return limb < limbs ? limb : size_q + limb - limbs;
}

/// x = sum of y_s B/b_s - u B from its residues modulo the primes of a block, whose number is known
/// to the compiler: y stays in registers.
template <std::size_t size>
struct Converter {
    BlockConstants block;
    const Prime* primes;
    std::size_t all;  ///< primes
    Word y[size];
    Word u;

    ATLASC_DEVICE void read(const Word* residues, int log_degree) {
        double sum = 0.5;
        for (std::size_t s = 0; s < size; ++s) {
            const Prime& q = block.own[s];
            y[s] = multiply(residues[s << log_degree], block.inverses[s], q);
            sum += static_cast<double>(y[s]) / static_cast<double>(q.value);
        }
        u = static_cast<Word>(sum);
    }

    ATLASC_DEVICE Word modulo(std::size_t prime) const {
        Wide sum = static_cast<Wide>(u) * block.minus[prime];
        for (std::size_t s = 0; s < size; ++s) {
            sum += static_cast<Wide>(y[s]) * block.hats[s * all + prime];
        }
        return reduce(sum, primes[prime]);
    }
};

/// One digit modulo all primes of an extended polynomial. On the digit's own primes it is the
/// polynomial itself, which stays in values.
template <std::size_t size>
struct Decompose {
    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    std::size_t size_p;
    const Prime* primes;
    BlockConstants block;
    const Word* coefficients;
    const Word* values;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        Converter<size> converter{block, primes, size_q + size_p, {}, 0};
        converter.read(coefficients + (block.first << log_degree) + at, log_degree);
        for (std::size_t limb = 0; limb < limbs + size_p; ++limb) {
            const std::size_t prime = prime_of(limb, limbs, size_q);
            const bool own = prime >= block.first && prime < block.first + size;
            const std::size_t place = (limb << log_degree) + at;
            out[place] = own ? values[place] : converter.modulo(prime);
        }
    }
};

/// The product of digits and both parts of a key, plus what is added to them, all at X^galois.
struct InnerProduct {
    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    std::size_t size_p;
    std::size_t digits;
    const Prime* primes;
    const Word* digit_words;
    Packing packing;  ///< of both parts of a key for each digit
    const Word* key_words;
    Addends addends;
    std::uint32_t galois;
    std::uint32_t back;  ///< galois^-1: where a value goes to
    bool accumulate;     ///< adds to what `out` holds
    Word* out;
    int log_run = 0;     ///< of 2^log_run equal values of digits, which are neighbours, one is stored

    /// What becomes the value at another place: both parts, not reduced.
    ATLASC_DEVICE void products(std::size_t at, Wide& b, Wide& a) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t start = limb << log_degree;
        const std::size_t extended = (limbs + size_p) << log_degree;
        const std::size_t key_limb = limb < limbs ? limb : packing.limbs + limb - limbs;
        const std::size_t bits = packing.bits(key_limb);
        const std::size_t part = packing.start(packing.limbs + packing.special);
        const Word* key = key_words + packing.start(key_limb);
        b = 0;
        a = 0;
        for (std::size_t digit = 0; digit < digits; ++digit) {
            const Word x = digit_words[(digit * extended + at) >> log_run];
            b += static_cast<Wide>(x) * unpacked(key + 2 * digit * part, bits, at - start);
            a += static_cast<Wide>(x) * unpacked(key + (2 * digit + 1) * part, bits, at - start);
        }
        if (limb < addends.limbs) {
            const Word factor = addends.factors == nullptr ? 1 : addends.factors[limb];
            b += static_cast<Wide>(addends.first[at]) * factor;
            a += addends.second == nullptr ? 0 : static_cast<Wide>(addends.second[at]) * factor;
        }
    }

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t start = limb << log_degree;
        const std::size_t extended = (limbs + size_p) << log_degree;
        Wide b;
        Wide a;
        products(at, b, a);
        const auto place = static_cast<std::uint32_t>(at - start);
        const std::size_t to = back == 1 ? at : start + permuted(place, back, log_degree);
        if (accumulate) {
            b += out[to];
            a += out[extended + to];
        }
        const Prime& q = primes[prime_of(limb, limbs, size_q)];
        out[to] = reduce(b, q);
        out[extended + to] = reduce(a, q);
    }
};

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

/// The residue modulo the product of a block of primes, as a centred number modulo the first primes
/// of Q, of some parts.
template <std::size_t size>
struct Remainder {
    int log_degree;
    std::size_t limbs;
    std::size_t all;
    const Prime* primes;
    BlockConstants block;
    const Word* coefficients;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t part = at >> log_degree;
        const std::size_t place = at & ((std::size_t{1} << log_degree) - 1);
        Converter<size> converter{block, primes, all, {}, 0};
        converter.read(coefficients + ((part * size) << log_degree) + place, log_degree);
        for (std::size_t limb = 0; limb < limbs; ++limb) {
            out[((part * limbs + limb) << log_degree) + place] = converter.modulo(limb);
        }
    }
};

/// One value of each run.
struct Compress {
    int log_run;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const { out[at] = in[at << log_run]; }
};

/// Coefficients rounded to integers: the real parts, then the imaginary ones.
struct Round {
    int log_degree;
    std::size_t limbs;      ///< of Q
    std::size_t extended;   ///< and special ones
    std::size_t size_q;
    const Prime* primes;
    std::size_t rest;  ///< coefficients whose place has one of these bits are 0
    const Complex* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t half = std::size_t{1} << (log_degree - 1);
        const double part = at < half ? in[at].x : in[at - half].y;
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
            out[(limb << log_degree) + at] = number < 0 ? negate(residue, q) : residue;
        }
    }
};

/// Of some vectors.
template <std::size_t most>
struct Rounds {
    Round of[most];

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t vector = at >> of[0].log_degree;
        of[vector](at - (vector << of[0].log_degree));
    }
};

}  // namespace atlasc::ckks
