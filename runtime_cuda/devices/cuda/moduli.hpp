// Arithmetic modulo one prime, in integers or in doubles. Passes compute with either.
//
// A number is 64 bits: an integer, or a double with an integral value. Modulo q it stands for a
// residue, but it need not be in [0, q). Memory that other kernels see holds words, which are
// integers in [0, q) in both cases.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

#include "ckks/ring/arithmetic.hpp"

namespace atlasc::ckks {

/// x 2^64 modulo q.
inline Word with_factor(Word x, const Prime& q) { return reduce(static_cast<Wide>(x) << 64, q); }

/// Integers modulo a prime q < 2^60, with q^-1 modulo 2^64, and 2^128 modulo q (Montgomery 1985). In
/// a pass they are less than 4q forwards and 2q backwards (Harvey 2014).
struct Integers {
    Word q;
    Word inverse;
    Word square;

    static Integers of(const Prime& q) {
        Word inverse = q.value;  // modulo 2^64: each step doubles the correct bits
        for (int bits = 3; bits < 64; bits *= 2) {
            inverse *= 2 - q.value * inverse;
        }
        return {q.value, inverse, with_factor(with_factor(1, q), q)};
    }

    /// A factor of `product`, of a residue: it has 2^64 in it, and takes one word.
    static Word factor(Word x, const Prime& q) { return with_factor(x, q); }

    static ATLASC_DEVICE Word less(Word x, Word bound) { return x >= bound ? x - bound : x; }

    /// x w / 2^64 modulo q, less than 5/4 q, for x < 4q.
    ATLASC_DEVICE Word lazy_product(Word x, Word w) const {
        const Wide whole = static_cast<Wide>(x) * w;
        const Word multiple = static_cast<Word>(whole) * inverse;
        const Wide same_low = static_cast<Wide>(multiple) * q;
        return static_cast<Word>(whole >> 64) - static_cast<Word>(same_low >> 64) + q;
    }

    ATLASC_DEVICE Word number(Word x) const { return x; }
    ATLASC_DEVICE Word word(Word x) const { return x; }
    ATLASC_DEVICE Word reduced(Word x) const { return less(less(x, 2 * q), q); }
    ATLASC_DEVICE Word product(Word x, Word factor) const {
        return less(lazy_product(x, factor), q);
    }
    ATLASC_DEVICE Word times(Word x, Word y) const { return product(product(x, y), square); }
    ATLASC_DEVICE Word quotient(Word dividend, Word x, Word inverse_of_divisor) const {
        const Word rest = dividend >= x ? dividend - x : dividend + q - x;
        return times(rest, inverse_of_divisor);
    }

    template <bool forwards>
    ATLASC_DEVICE void butterfly(Word& x, Word& y, Word w, int) const {
        const Word twice = 2 * q;
        if (forwards) {
            const Word first = less(x, twice);
            const Word second = lazy_product(y, w);
            x = first + second;
            y = first + twice - second;
        } else {
            const Word difference = x + twice - y;
            x = less(x + y, twice);
            y = lazy_product(difference, w);
        }
    }
};

/// Doubles modulo an odd prime q < 2^50, with 1/q as the nearest double.
///
/// Every double here is an integer of at most 2^53, or the rounded product h below, so nothing is
/// lost. u = 2^-53 is the greatest relative error of one rounding. In a product of |y| < 2^52 and a
/// factor |w| <= (q - 1)/2
///
///   h = y w rounded, and l = y w - h is exact by an FMA: |h| < 2^51 q, and |l| <= u |y w|.
///   k = fma(h, 1/q, M) - M with M = 1.5 2^52. As |h/q| < 2^51 - 1, the FMA yields a number between
///       2^52 and 2^53, where doubles are the integers. So k is the integer nearest to h times the
///       double 1/q. That is at most 2u |y w/q| away from y w/q, since two numbers were rounded.
///   r = fma(-k, q, h) + l = y w - k q, exactly: h - k q and r are integers far below 2^53.
///
/// So |r| <= q/2 + 2u |y w| <= q (1/2 + u |y|), which is q (1/2 + b/8) where |y| <= b q.
/// `reduced` is the same for |x| < 2^53 without l, and yields at most (q + 1)/2.
///
/// A factor may be multiplied by every |y| <= 4q, since 4q < 2^52. Numbers keep to this bound, where
/// a step is up to three stages, whose distances end with 2^log_apart = 1:
///
///   Forwards, a stage leads from b to b + 1/2 + b/8, and to 1 + b/8 where it reduces x. Each step
///   reduces in its last stage. From at most 1.35 q (or q, as words begin) it leads to 2.02, 2.78
///   and again to 1.35 q; a shorter step stays below.
///   Backwards, numbers of at most 2q have differences of at most 4q, which become products of at
///   most q. The sum is reduced where log_apart is 0 or 2: from 2q these stages lead to q, and the
///   one between them from q to 2q.
///
/// No compiler can change this by contracting products and sums: h is the only product outside an
/// FMA, and no operand of a sum.
struct Doubles {
    static constexpr int most_bits = 50;  ///< of a prime

    double q;
    double inverse;

    static Doubles of(const Prime& q) {
        const auto value = static_cast<double>(q.value);
        return {value, 1.0 / value};
    }

    /// A factor of `product`, of a residue: within q/2 of 0.
    static Word factor(Word x, const Prime& q) { return to_bits(of(q).balanced(x)); }

    static ATLASC_DEVICE double from_bits(Word bits) {
        double x = 0.0;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
    static ATLASC_DEVICE Word to_bits(double x) {
        Word bits = 0;
        std::memcpy(&bits, &x, sizeof bits);
        return bits;
    }

    static ATLASC_DEVICE double nearest(double x, double y) {
        constexpr double base = 0x1.8p52;
        return std::fma(x, y, base) - base;
    }
    ATLASC_DEVICE double lazy_product(double y, double w) const {
        const double high = y * w;
        const double low = std::fma(y, w, -high);
        return std::fma(-nearest(high, inverse), q, high) + low;
    }
    ATLASC_DEVICE double settled(double x) const {
        return std::fma(-nearest(x, inverse), q, x);
    }
    /// Integers below 2^52 are the lowest bits of doubles from 2^52 on.
    static ATLASC_DEVICE double of_word(Word x) {
        constexpr double base = 0x1p52;
        return from_bits(to_bits(base) | x) - base;
    }
    ATLASC_DEVICE double balanced(Word x) const {
        const double number = of_word(x);
        return number + number > q ? number - q : number;
    }

    ATLASC_DEVICE Word number(Word x) const { return to_bits(of_word(x)); }
    /// Of a number between -q and q.
    ATLASC_DEVICE Word word(Word x) const {
        constexpr double base = 0x1p52;
        const double number = from_bits(x);
        return to_bits((number < 0.0 ? number + q : number) + base) ^ to_bits(base);
    }
    ATLASC_DEVICE Word reduced(Word x) const { return to_bits(settled(from_bits(x))); }
    ATLASC_DEVICE Word product(Word x, Word factor) const {
        return to_bits(lazy_product(from_bits(x), from_bits(factor)));
    }
    ATLASC_DEVICE Word times(Word x, Word y) const {
        return to_bits(lazy_product(from_bits(x), balanced(y)));
    }
    ATLASC_DEVICE Word quotient(Word dividend, Word x, Word inverse_of_divisor) const {
        return word(times(to_bits(of_word(dividend) - of_word(x)), inverse_of_divisor));
    }

    template <bool forwards>
    ATLASC_DEVICE void butterfly(Word& first, Word& second, Word factor, int log_apart) const {
        const double x = from_bits(first);
        const double y = from_bits(second);
        const double w = from_bits(factor);
        if (forwards) {
            const double small = log_apart == 0 ? settled(x) : x;
            const double product = lazy_product(y, w);
            first = to_bits(small + product);
            second = to_bits(small - product);
        } else {
            first = to_bits(log_apart == 1 ? x + y : settled(x + y));
            second = to_bits(lazy_product(x - y, w));
        }
    }
};

/// How a prime's numbers are computed with. A block of threads works modulo one prime, or short
/// vectors modulo a few, so that its threads decide alike.
struct Modulus {
    bool in_doubles;
    Integers integers;
    Doubles doubles;

    /// Each prime has its own, since sets have primes of 40 to 50 bits for most of their levels, and
    /// larger ones beside them.
    static Modulus of(const Prime& q, bool doubles_are_fast) {
        const bool fits = q.value >> Doubles::most_bits == 0;
        return {doubles_are_fast && fits, Integers::of(q), Doubles::of(q)};
    }

    Word factor(Word x, const Prime& q) const {
        return in_doubles ? Doubles::factor(x, q) : Integers::factor(x, q);
    }

    /// (dividend - x) times an inverse, all of them words.
    ATLASC_DEVICE Word quotient(Word dividend, Word x, Word inverse) const {
        return in_doubles ? doubles.quotient(dividend, x, inverse)
                          : integers.quotient(dividend, x, inverse);
    }
};

}  // namespace atlasc::ckks
