#include "ckks/keys/raise.hpp"

#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// A polynomial modulo q_0 and p_0 times both parts of a key.
struct SmallProduct {
    int log_degree;
    std::size_t size_q;
    const Prime* primes;
    const Word* digit;
    const Word* key;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t part = std::size_t{2} << log_degree;
        const Prime& q = primes[(at >> log_degree) == 0 ? 0 : size_q];
        out[at] = multiply(digit[at], key[at], q);
        out[part + at] = multiply(digit[at], key[part + at], q);
    }
};

/// The ciphertext under the sparse secret, modulo q_0.
Polys under_sparse_secret(const Ring& ring, const Polys& x, const Words& key) {
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
           SmallProduct{ring.log_degree(), ring.size_q(), ring.primes(), digit.get(), key.get(),
                        products.get()},
           "switch to the sparse secret");

    Polys out(ring, 2, 1);
    const Words remainder = ring.polynomial(1);
    for (std::size_t part = 0; part < 2; ++part) {
        const Word* product = products.get() + 2 * part * degree;
        ring.backward(coefficients.get(), product + degree, 1, p);
        lift_coefficients(ring, coefficients.get(), p, remainder.get(), 0, 1);
        ring.forward(remainder.get(), 1);
        divide(ring,
               {product, remainder.get(), ring.inverse_of_first_special(),
                part == 0 ? x.part(0) : nullptr, 1, out.part(part)},
               1);
    }
    return out;
}

}  // namespace

Polys raised(const Ring& ring, const Polys& x, const RaisingKeys& keys) {
    const Polys sparse = under_sparse_secret(ring, x, keys.to_sparse);
    Polys lifted(ring, 2, ring.size_q());
    const Words coefficients = ring.polynomial(1);
    for (std::size_t part = 0; part < 2; ++part) {
        ring.backward(coefficients.get(), sparse.part(part), 1);
        lift_coefficients(ring, coefficients.get(), 0, lifted.part(part), 0, ring.size_q());
        ring.forward(lifted.part(part), ring.size_q());
    }
    const Digits digits = decomposed(ring, lifted.part(1), ring.size_q());
    return switched(ring, digits, keys.to_dense, 1, {lifted.part(0), nullptr});
}

}  // namespace atlasc::ckks
