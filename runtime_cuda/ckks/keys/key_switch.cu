#include "ckks/keys/key_switch.hpp"

#include <algorithm>
#include <type_traits>

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

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

/// Calls function(std::integral_constant of size) for a size of 1 to 8, as chain_of allows.
template <std::size_t size = 1, typename Function>
void with_size(std::size_t wanted, const Function& function) {
    if (wanted == size) {
        function(std::integral_constant<std::size_t, size>());
    } else if constexpr (size < most_special) {
        with_size<size + 1>(wanted, function);
    }
}

}  // namespace

std::size_t key_words(const Ring& ring, std::size_t limbs) {
    return ring.digits(limbs) * 2 * (limbs + ring.size_p()) * ring.degree();
}

Digits decomposed(const Ring& ring, const Word* polynomial, std::size_t limbs) {
    const std::size_t extended = limbs + ring.size_p();
    const std::size_t count = ring.digits(limbs);
    Digits digits{limbs, ring.polynomial(count * extended)};
    const Words coefficients = ring.polynomial(limbs);
    ring.backward(coefficients.get(), polynomial, limbs);
    for (std::size_t digit = 0; digit < count; ++digit) {
        const std::size_t first = digit * ring.digit_size();
        const std::size_t size = std::min(ring.digit_size(), limbs - first);
        Word* out = digits.words.get() + digit * extended * ring.degree();
        with_size(size, [&](auto constant) {
            constexpr std::size_t count = decltype(constant)::value;
            launch(ring.degree(),
                   Decompose<count>{ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
                                    ring.primes(), ring.digit(first, size), coefficients.get(),
                                    polynomial, out},
                   "digits of a key switch");
        });
        ring.forward_extended(out, limbs, first, first + size);
    }
    return digits;
}

Polys switched(const Ring& ring, const Digits& digits, const SwitchKey& key, std::uint32_t galois,
               const Addends& addends) {
    const std::size_t limbs = digits.limbs;
    const std::size_t extended = limbs + ring.size_p();
    const Words products = ring.polynomial(2 * extended);
    launch(extended * ring.degree(),
           InnerProduct{ring.log_degree(), limbs, key.limbs, ring.size_q(), ring.size_p(),
                        ring.digits(limbs), ring.primes(), digits.words.get(), key.words.get(),
                        products.get()},
           "products with a key");
    Polys out(ring, 2, limbs);
    const Words remainder = ring.polynomial(limbs);
    for (std::size_t part = 0; part < 2; ++part) {
        Word* product = products.get() + part * extended * ring.degree();
        Word* special = product + limbs * ring.degree();
        ring.backward(special, special, ring.size_p(), ring.size_q());
        with_size(ring.size_p(), [&](auto constant) {
            constexpr std::size_t count = decltype(constant)::value;
            launch(ring.degree(),
                   Remainder<count>{ring.log_degree(), limbs, ring.size_qp(), ring.primes(),
                                    ring.special(), special, remainder.get()},
                   "remainder of a key switch");
        });
        ring.forward(remainder.get(), limbs);
        divide(ring,
               {product, remainder.get(), ring.inverse_of_special(),
                part == 0 ? addends.first : addends.second, galois, out.part(part)},
               limbs);
    }
    return out;
}

std::uint32_t galois_of(const Ring& ring, std::size_t amount) {
    const std::uint64_t order = 2 * ring.degree();
    std::uint64_t element = 1;
    for (std::uint64_t power = 5; amount != 0; amount >>= 1, power = power * power % order) {
        element = (amount & 1) != 0 ? element * power % order : element;
    }
    return static_cast<std::uint32_t>(element);
}

std::uint32_t galois_of_conjugation(const Ring& ring) {
    return static_cast<std::uint32_t>(2 * ring.degree() - 1);
}

}  // namespace atlasc::ckks
