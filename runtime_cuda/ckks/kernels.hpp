// What the scheme computes for every residue, as function objects: `launch` of the device's kernel.hpp
// calls them for all. A device may have a faster way for some of them.
#pragma once

#include <cmath>

#include "ckks/polynomials.hpp"

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

/// a b + sum, of which there may be none: a product of residues leaves room for another one.
ATLASC_DEVICE inline Word multiply_add(Word a, Word b, const Source& sum, const Shape& shape,
                                       std::size_t at, const Prime& q) {
    Wide result = static_cast<Wide>(a) * b;
    if (sum.words != nullptr) {
        result += sum.words[shape.in(at, sum.limbs)];
    }
    return reduce(result, q);
}

/// Every part times a polynomial: the element of the same limb and place.
struct TimesPolynomial {
    Shape shape;
    const Prime* primes;
    Source a;
    const Word* polynomial;
    Source sum;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at - ((shape.part(at) * shape.limbs) << shape.log_degree);
        out[at] = multiply_add(a.words[shape.in(at, a.limbs)], polynomial[place], sum, shape, at,
                               primes[shape.limb(at)]);
    }
};

struct TimesNumber {
    Shape shape;
    const Prime* primes;
    Source a;
    Residues number;
    Source sum;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = shape.limb(at);
        out[at] = multiply_add(a.words[shape.in(at, a.limbs)], number.of[limb], sum, shape, at,
                               primes[limb]);
    }
};

struct PlusPolynomial {
    Shape shape;
    const Prime* primes;
    Source a;
    const Word* polynomial;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const Word x = a.words[shape.in(at, a.limbs)];
        out[at] = shape.part(at) == 0 ? add(x, polynomial[at], primes[shape.limb(at)]) : x;
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

struct Divide {
    int log_degree;
    const Prime* primes;
    Division division;
    std::uint32_t back;  ///< galois^-1: where a value goes to

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const Prime& q = primes[limb];
        Word x = multiply(subtract(division.values[at], division.minuend[at], q),
                          division.inverse[limb], q);
        if (division.addend != nullptr) {
            x = add(x, division.addend[at], q);
        }
        const std::size_t start = limb << log_degree;
        const auto place = static_cast<std::uint32_t>(at - start);
        division.out[back == 1 ? at : start + permuted(place, back, log_degree)] = x;
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
            const Prime& q = primes[block.first + s];
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

/// The product of digits and both parts of a key.
struct InnerProduct {
    int log_degree;
    std::size_t limbs;
    std::size_t key_limbs;
    std::size_t size_q;
    std::size_t size_p;
    std::size_t digits;
    const Prime* primes;
    const Word* digit_words;
    const Word* key_words;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t start = limb << log_degree;
        const std::size_t extended = (limbs + size_p) << log_degree;
        const std::size_t key_part = (key_limbs + size_p) << log_degree;
        const std::size_t key_limb = limb < limbs ? limb : key_limbs + limb - limbs;
        const std::size_t in_key = (key_limb << log_degree) + at - start;
        Wide b = 0;
        Wide a = 0;
        for (std::size_t digit = 0; digit < digits; ++digit) {
            const Word x = digit_words[digit * extended + at];
            b += static_cast<Wide>(x) * key_words[2 * digit * key_part + in_key];
            a += static_cast<Wide>(x) * key_words[(2 * digit + 1) * key_part + in_key];
        }
        const Prime& q = primes[prime_of(limb, limbs, size_q)];
        out[at] = reduce(b, q);
        out[extended + at] = reduce(a, q);
    }
};

/// The residue of an extended polynomial modulo P, as a centred number modulo primes of Q.
template <std::size_t size>
struct Remainder {
    int log_degree;
    std::size_t limbs;
    std::size_t all;
    const Prime* primes;
    BlockConstants special;
    const Word* coefficients;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        Converter<size> converter{special, primes, all, {}, 0};
        converter.read(coefficients + at, log_degree);
        for (std::size_t limb = 0; limb < limbs; ++limb) {
            out[(limb << log_degree) + at] = converter.modulo(limb);
        }
    }
};

/// Coefficients rounded to integers: the real parts, then the imaginary ones.
struct Round {
    int log_degree;
    std::size_t limbs;
    const Prime* primes;
    const Complex* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t half = std::size_t{1} << (log_degree - 1);
        const double number = rint(at < half ? in[at].x : in[at - half].y);
        double size = number < 0 ? -number : number;
        int shift = 0;
        while (size >= 0x1p63) {  // a scale of 2^92 is possible; halving is exact
            size *= 0.5;
            ++shift;
        }
        const Word mantissa = static_cast<Word>(size);
        for (std::size_t limb = 0; limb < limbs; ++limb) {
            const Prime& q = primes[limb];
            Word residue = reduce(mantissa, q);
            for (int bit = 0; bit < shift; ++bit) {
                residue = add(residue, residue, q);
            }
            out[(limb << log_degree) + at] = number < 0 ? negate(residue, q) : residue;
        }
    }
};

}  // namespace atlasc::ckks
