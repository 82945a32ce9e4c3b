// What a division and a key switch compute for every residue, as function objects like those of
// kernels.hpp: conversions to other primes, and products with keys.
#pragma once

#include <string>
#include <type_traits>

#include "atlasc/base/error.hpp"
#include "ckks/ring/kernels.hpp"
#include "ckks/ring/packing.hpp"

namespace atlasc::ckks {

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

/// x = sum of y_s B/b_s - u B from its residues modulo the primes of a block. The compiler knows how
/// many there are at most: y stays in registers.
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
            if (s >= block.size) {
                break;
            }
            const Prime& q = block.own[s];
            y[s] = multiply(residues[s << log_degree], block.inverses[s], q);
            sum += static_cast<double>(y[s]) / static_cast<double>(q.value);
        }
        u = static_cast<Word>(sum);
    }

    ATLASC_DEVICE Word modulo(std::size_t prime) const {
        Wide sum = static_cast<Wide>(u) * block.minus[prime];
        for (std::size_t s = 0; s < size; ++s) {
            if (s >= block.size) {
                break;
            }
            sum += static_cast<Wide>(y[s]) * block.hats[s * all + prime];
        }
        return reduce(sum, primes[prime]);
    }
};

/// Of a polynomial, as coefficients and as values.
struct Digit {
    BlockConstants block;
    const Word* coefficients;
    const Word* values;
    Word* out;  ///< extended
};

/// Some digits, of at most `size` primes each, modulo all primes of an extended polynomial. On a
/// digit's own primes it is the polynomial itself, which stays in values.
template <std::size_t size>
struct Decompose {
    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    std::size_t size_p;
    std::size_t all;  ///< primes
    const Prime* primes;
    Digit of[most_together];

    ATLASC_DEVICE void operator()(std::size_t index) const {
        const Digit& digit = of[index >> log_degree];
        const std::size_t at = index & ((std::size_t{1} << log_degree) - 1);
        const BlockConstants& block = digit.block;
        Converter<size> converter{block, primes, all, {}, 0};
        converter.read(digit.coefficients + (block.first << log_degree) + at, log_degree);
        for (std::size_t limb = 0; limb < limbs + size_p; ++limb) {
            const std::size_t prime = prime_of(limb, limbs, size_q);
            const bool own = prime >= block.first && prime < block.first + block.size;
            const std::size_t place = (limb << log_degree) + at;
            digit.out[place] = own ? digit.values[place] : converter.modulo(prime);
        }
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
    Chain::Gap gap;   ///< of the ring, in the key
    const Word* key_words;
    Addends addends;
    std::uint32_t galois;
    std::uint32_t back;  ///< galois^-1: where a value goes to
    bool accumulate;     ///< adds to what `out` holds
    Word* out;
    int log_run = 0;     ///< of 2^log_run equal values of digits, which are neighbours, one is stored
    const Word* own = nullptr;  ///< of digits that lack their own primes: the polynomial itself
    const Word* digit_numbers = nullptr;  ///< [limb]: the digit that has the prime for its own
    std::size_t values = ~std::size_t{0};  ///< limbs that stay so (`Transforms::key_products`)

    /// Places of one part of the result.
    std::size_t places() const { return (limbs + size_p) << log_degree; }

    /// The key's limb of one of the ring's.
    ATLASC_DEVICE std::size_t key_limb(std::size_t limb) const {
        return limb < limbs ? gap.key_limb(limb) : packing.limbs + limb - limbs;
    }

    /// A limb of the key.
    struct KeyLimb {
        const Word* words;
        std::size_t bits;
        std::size_t part;  ///< words of one
    };

    ATLASC_DEVICE KeyLimb key_of(std::size_t limb) const {
        return {key_words + packing.start(key_limb(limb)), packing.bits(key_limb(limb)),
                packing.start(packing.limbs + packing.special)};
    }

    /// Both parts of a key for a digit, at a place of a limb.
    ATLASC_DEVICE void read(const KeyLimb& key, std::size_t digit, std::size_t place, Word& b,
                            Word& a) const {
        const Word* parts = key.words + 2 * gap.key_digit(digit) * key.part;
        b = unpacked(parts, key.bits, place);
        a = unpacked(parts + key.part, key.bits, place);
    }

    /// The digit that the polynomial itself is, modulo the prime of a limb; none: `digits`.
    ATLASC_DEVICE std::size_t whole(std::size_t limb) const {
        return own != nullptr && limb < limbs ? digit_numbers[limb] : digits;
    }

    ATLASC_DEVICE Word value(std::size_t digit, std::size_t at, std::size_t whole) const {
        const std::size_t extended = (limbs + size_p) << log_degree;
        return digit == whole ? own[at] : digit_words[(digit * extended + at) >> log_run];
    }

    ATLASC_DEVICE void add_addends(std::size_t at, Wide& b, Wide& a) const {
        const std::size_t limb = at >> log_degree;
        if (limb < addends.limbs) {
            const Word factor = addends.factors == nullptr ? 1 : addends.factors[limb];
            b += static_cast<Wide>(addends.first[at]) * factor;
            a += addends.second == nullptr ? 0 : static_cast<Wide>(addends.second[at]) * factor;
        }
    }

    /// What becomes the value at another place: both parts, not reduced.
    ATLASC_DEVICE void products(std::size_t at, Wide& b, Wide& a) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t place = at - (limb << log_degree);
        const KeyLimb key = key_of(limb);
        const std::size_t itself = whole(limb);
        b = 0;
        a = 0;
        for (std::size_t digit = 0; digit < digits; ++digit) {
            Word key_b;
            Word key_a;
            read(key, digit, place, key_b, key_a);
            const Word x = value(digit, at, itself);
            b += static_cast<Wide>(x) * key_b;
            a += static_cast<Wide>(x) * key_a;
        }
        add_addends(at, b, a);
    }

    ATLASC_DEVICE void operator()(std::size_t at) const {
        Wide b;
        Wide a;
        products(at, b, a);
        write(at, b, a);
    }

    ATLASC_DEVICE void write(std::size_t at, Wide b, Wide a) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t start = limb << log_degree;
        const std::size_t extended = (limbs + size_p) << log_degree;
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

/// Some of them, of one polynomial for different rotations: its digits are read once.
struct HoistedProducts {
    static constexpr std::size_t most = 4;

    std::size_t count;
    InnerProduct of[most];

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const InnerProduct& first = of[0];
        const std::size_t limb = at >> first.log_degree;
        const std::size_t place = at - (limb << first.log_degree);
        const std::size_t whole = first.whole(limb);
        InnerProduct::KeyLimb keys[most] = {};
        Wide b[most] = {};
        Wide a[most] = {};
        for (std::size_t one = 0; one < most; ++one) {  // constants: sums stay in registers
            if (one < count) {
                keys[one] = of[one].key_of(limb);
            }
        }
        for (std::size_t digit = 0; digit < first.digits; ++digit) {
            const Word x = first.value(digit, at, whole);
            for (std::size_t one = 0; one < most; ++one) {
                if (one < count) {
                    Word key_b;
                    Word key_a;
                    of[one].read(keys[one], digit, place, key_b, key_a);
                    b[one] += static_cast<Wide>(x) * key_b;
                    a[one] += static_cast<Wide>(x) * key_a;
                }
            }
        }
        for (std::size_t one = 0; one < most; ++one) {
            if (one < count) {
                of[one].add_addends(at, b[one], a[one]);
                of[one].write(at, b[one], a[one]);
            }
        }
    }
};

/// The sum of some of them, which accumulate nothing and have the same primes.
struct InnerProducts {
    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    std::size_t size_p;
    const Prime* primes;
    const InnerProduct* terms;
    std::size_t count;
    std::size_t digits;  ///< of a term, at most
    bool accumulate;     ///< adds to what `out` holds
    Word* out;

    std::size_t places() const { return (limbs + size_p) << log_degree; }

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t limb = at >> log_degree;
        const std::size_t start = limb << log_degree;
        const std::size_t extended = (limbs + size_p) << log_degree;
        const Prime& q = primes[prime_of(limb, limbs, size_q)];
        const auto place = static_cast<std::uint32_t>(at - start);
        Word sums[2] = {accumulate ? out[at] : 0, accumulate ? out[extended + at] : 0};
        for (std::size_t term = 0; term < count; ++term) {
            Wide b;
            Wide a;
            terms[term].products(start + permuted(place, terms[term].galois, log_degree), b, a);
            sums[0] = add(sums[0], reduce(b, q), q);
            sums[1] = add(sums[1], reduce(a, q), q);
        }
        out[at] = sums[0];
        out[extended + at] = sums[1];
    }
};

}  // namespace atlasc::ckks
