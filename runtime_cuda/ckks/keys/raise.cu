#include "ckks/keys/raise.hpp"

#include <vector>

#include "ckks/keys/rotated_sums.hpp"
#include "ckks/ring/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// A polynomial modulo q_0 and p_0 times both parts of a key.
struct SmallProduct {
    int log_degree;
    std::size_t size_q;
    const Prime* primes;
    const Word* digit;
    Packing packing;
    const Word* key;
    const Word* addend;  ///< times p_0, to the first part
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t part = std::size_t{2} << log_degree;
        const std::size_t limb = at >> log_degree;
        const bool special = limb != 0;
        const std::size_t place = at - (limb << log_degree);
        const std::size_t bits = packing.bits(limb);
        const Word b = unpacked(key + packing.start(limb), bits, place);
        const Word a = unpacked(key + packing.start(2) + packing.start(limb), bits, place);
        const Prime& q = primes[special ? size_q : 0];
        const Wide sum = special ? 0 : static_cast<Wide>(addend[at]) * primes[size_q].value;
        out[at] = reduce(sum + static_cast<Wide>(digit[at]) * b, q);
        out[part + at] = multiply(digit[at], a, q);
    }
};

/// The ciphertext under the sparse secret, modulo q_0.
Polys under_sparse_secret(const Ring& ring, const Polys& x, const SwitchKey& key) {
    const std::size_t degree = ring.degree();
    const std::size_t p = ring.size_q();  // position of p_0 among all primes
    const Words coefficients = ring.polynomial(1);
    const Words digit = ring.polynomial(2);
    ring.backward(coefficients.get(), x.part(1), 1);
    lift_coefficients(ring, coefficients.get(), 0, digit.get(), 0, 1);
    lift_coefficients(ring, coefficients.get(), 0, digit.get() + degree, p, 1);
    ring.forward(digit.get(), 1);
    ring.forward(digit.get() + degree, 1, p);
    const Words products = ring.polynomial(4);
    launch(2 * degree,
           SmallProduct{ring.log_degree(), ring.size_q(), ring.primes(), digit.get(), key.packing,
                        key.words.get(),
                        x.part(0), products.get()},
           "switch to the sparse secret");

    Polys out(ring, 2, 1);
    const Words remainder = ring.polynomial(1);
    for (std::size_t part = 0; part < 2; ++part) {
        const Word* product = products.get() + 2 * part * degree;
        ring.backward(coefficients.get(), product + degree, 1, p);
        lift_coefficients(ring, coefficients.get(), p, remainder.get(), 0, 1);
        ring.forward(remainder.get(), 1);
        launch(degree,
               Divide{ring.log_degree(), 1, ring.primes(), product, 0, remainder.get(),
                      ring.inverse_of_first_special(), out.part(part)},
               "division by a special prime");
    }
    return out;
}

}  // namespace

Polys raised(const Ring& ring, const Polys& x, const EvaluationKeys& keys, std::size_t limbs,
             std::size_t copies) {
    const Polys sparse = under_sparse_secret(ring, x, *keys.to_sparse);
    const Polys first(ring, 1, limbs);
    const Digits digits{limbs, 1, ring.polynomial(limbs + ring.size_p())};
    Word* special = digits.words.get() + limbs * ring.degree();
    const Words coefficients = ring.polynomial(1);
    ring.backward(coefficients.get(), sparse.part(0), 1);
    lift_coefficients(ring, coefficients.get(), 0, first.part(0), 0, limbs);
    ring.forward(first.part(0), limbs);
    ring.backward(coefficients.get(), sparse.part(1), 1);
    lift_coefficients(ring, coefficients.get(), 0, digits.words.get(), 0, limbs);
    lift_coefficients(ring, coefficients.get(), 0, special, ring.size_q(), ring.size_p());
    ring.forward(digits.words.get(), limbs);
    ring.forward(special, ring.size_p(), ring.size_q());
    std::vector<Baby> rotated;
    for (std::size_t copy = 0; copy < copies; ++copy) {
        const std::size_t amount = copy * ring.slots() / copies;
        rotated.push_back({&first, &digits, &keys.to_dense.at(amount), galois_of(ring, amount)});
    }
    return divided(ring, rotated_sum(ring, rotated, limbs), 0);
}

}  // namespace atlasc::ckks
