#include "ckks/keys/key_switch.hpp"

#include <algorithm>
#include <type_traits>

#include "ckks/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Calls function(std::integral_constant of size) for a size of 1 to 16, as chain_of allows.
template <std::size_t size = 1, typename Function>
void with_size(std::size_t wanted, const Function& function) {
    if (wanted == size) {
        function(std::integral_constant<std::size_t, size>());
    } else if constexpr (size < most_in_digit) {
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
        ring.forward_extended(out, limbs, own.first, own.first + own.size);
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
