#include "ckks/keys/key_switch.hpp"

#include <algorithm>

#include "ckks/ring/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
Digits decomposed(const Ring& ring, const Word* polynomial, std::size_t limbs) {
    const std::size_t extended = limbs + ring.size_p();
    const std::size_t count = ring.digits(limbs);
    Digits digits{limbs, count, ring.polynomial(count * extended)};
    const Words coefficients = ring.polynomial(limbs);
    ring.backward(coefficients.get(), polynomial, limbs);
    Limbs values{extended, 0, limbs};
    for (std::size_t digit = 0; digit < count; ++digit) {
        const BlockConstants own = ring.digit(digit, limbs);
        Word* out = digits.words.get() + digit * extended * ring.degree();
        with_size(own.size, [&](auto constant) {
            constexpr std::size_t count = decltype(constant)::value;
            launch(ring.degree(),
                   Decompose<count>{ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
                                    ring.primes(), own, coefficients.get(),
                                    polynomial, out},
                   "digits of a key switch");
        });
        values.add(out, out, own.first, own.first + own.size);
        if (values.polynomials == together() || digit + 1 == count) {
            ring.forward(values);
            values.polynomials = 0;
        }
    }
    return digits;
}

Addends times_special(const Ring& ring, const Word* first, const Word* second,
                      std::size_t limbs) {
    return {first, second, limbs, ring.special_products()};
}

void switch_to(const Ring& ring, const Digits& digits, const SwitchKey& key,
               std::uint32_t galois, const Addends& addends, Extended& out, bool accumulate) {
    const std::size_t limbs = digits.limbs;
    launch((limbs + ring.size_p()) * ring.degree(),
           InnerProduct{ring.log_degree(), limbs, ring.size_q(), ring.size_p(),
                        digits.count, ring.primes(), digits.words.get(), key.packing,
                        key.words.get(), addends, galois, inverse_galois(ring, galois), accumulate,
                        out.words.get(), digits.log_run},
           "products with a key");
}

Digits decomposed(const Ring& ring, const Extended& x) {
    const Words second = ring.polynomial(x.limbs);
    const std::size_t part = (x.limbs + ring.size_p()) * ring.degree();
    divide(ring, ring.divisor(0, true), x.words.get() + part, 1, 0, x.limbs, second.get());
    return decomposed(ring, second.get(), x.limbs);
}

Addends first_part(const Ring& ring, const Extended& x) {
    return {x.words.get(), nullptr, x.limbs + ring.size_p(), nullptr};
}

void add_to(const Ring& ring, const Extended& x, Extended& sum) {
    const std::size_t limbs = x.limbs + ring.size_p();
    const Word* second = x.words.get() + limbs * ring.degree();
    // No digits: nothing but the addends is left.
    launch(limbs * ring.degree(),
           InnerProduct{ring.log_degree(), x.limbs, ring.size_q(), ring.size_p(), 0,
                        ring.primes(), nullptr, Packing(ring, x.limbs, ring.size_p()), nullptr,
                        {x.words.get(), second, limbs, nullptr}, 1, 1, true, sum.words.get()},
           "a sum of ciphertexts times the special primes");
}

Polys divided(const Ring& ring, const Extended& x, int level) {
    const Divisor divisor = ring.divisor(level, true);
    const std::size_t limbs = x.limbs - divisor.primes;
    Polys out(ring, 2, limbs);
    divide(ring, divisor, x.words.get(), 2, (x.limbs + ring.size_p()) * ring.degree(), limbs,
           out.part(0));
    return out;
}

Polys switched(const Ring& ring, const Digits& digits, const SwitchKey& key, std::uint32_t galois,
               const Addends& addends, int level) {
    Extended products(ring, digits.limbs);
    switch_to(ring, digits, key, galois, addends, products, false);
    return divided(ring, products, level);
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
