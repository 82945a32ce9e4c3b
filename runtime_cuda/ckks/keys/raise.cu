#include "ckks/keys/raise.hpp"

#include <algorithm>
#include <utility>

#include "ckks/ring/switch_kernels.hpp"
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

/// What coefficients modulo q_0 have of powers of X^raised_copies.
struct MeanOfCopies {
    int log_degree;
    const Prime* primes;
    const Word* coefficients;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t place = at & ((std::size_t{1} << log_degree) - 1);
        out[at] = (place & (raised_copies - 1)) != 0
                      ? 0
                      : lift(coefficients[place], primes[0], primes[at >> log_degree]);
    }
};

/// The same of the coefficients times X^digit: [digit][limb][N / 2^log_run].
struct DigitsOfCopies {
    int log_degree;
    int log_run;
    std::size_t limbs;
    std::size_t extended;
    std::size_t size_q;
    const Prime* primes;
    const Word* coefficients;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const int log_short = log_degree - log_run;
        const std::size_t limb = (at >> log_short) % extended;
        const std::size_t digit = (at >> log_short) / extended;
        const std::size_t place = (at & ((std::size_t{1} << log_short) - 1)) << log_run;
        if ((place & (raised_copies - 1)) != 0) {
            out[at] = 0;
            return;
        }
        const Prime& q = primes[prime_of(limb, limbs, size_q)];
        const bool wraps = place < digit;  // X^N = -1
        const std::size_t from = wraps ? place + (std::size_t{1} << log_degree) - digit
                                       : place - digit;
        const Word x = lift(coefficients[from], primes[0], q);
        out[at] = wraps ? negate(x, q) : x;
    }
};

/// Coefficients of both parts of the ciphertext under the sparse secret, modulo q_0: [part][N].
Words under_sparse_secret(const Ring& ring, const Polys& x, const SwitchKey& key) {
    const std::size_t degree = ring.degree();
    const std::size_t p = ring.size_q();  // position of p_0 among all primes
    const Words coefficients = ring.polynomial(1);
    const Words digit = ring.polynomial(2);
    ring.backward(coefficients.get(), x.part(1), 1);
    lift_coefficients(ring, coefficients.get(), 0, digit.get(), 0, 1);
    lift_coefficients(ring, coefficients.get(), 0, digit.get() + degree, p, 1);
    Limbs values{2, 0, 1};
    values.add(digit.get(), digit.get());
    ring.forward(values);
    const Words products = ring.polynomial(4);
    launch(2 * degree,
           SmallProduct{ring.log_degree(), ring.size_q(), ring.primes(), digit.get(), key.packing,
                        key.words.get(),
                        x.part(0), products.get()},
           "switch to the sparse secret");

    // Parts go together: a limb alone keeps a device far from busy.
    const Polys sparse(ring, 2, 1);
    const Words rests = ring.polynomial(2);
    const Words remainder = ring.polynomial(2);
    Limbs divided{1, p};
    Limbs remainders{1};
    Limbs parts{1};
    Words out = ring.polynomial(2);
    for (std::size_t part = 0; part < 2; ++part) {
        const Word* product = products.get() + 2 * part * degree;
        divided.add(rests.get() + part * degree, product + degree);
        remainders.add(remainder.get() + part * degree, remainder.get() + part * degree);
        remainders.dividends[part] = product;
        remainders.quotients[part] = sparse.part(part);
        parts.add(out.get() + part * degree, sparse.part(part));
    }
    ring.backward(divided);
    for (std::size_t part = 0; part < 2; ++part) {
        lift_coefficients(ring, divided.out[part], p, remainders.out[part], 0, 1);
    }
    subtract_and_divide(ring, remainders, ring.inverse_of_first_special());
    ring.backward(parts);
    return out;
}

}  // namespace

Polys raised(const Ring& ring, const Polys& x, const EvaluationKeys& keys, std::size_t limbs) {
    const Words sparse = under_sparse_secret(ring, x, *keys.to_sparse);
    const Word* const second = sparse.get() + ring.degree();
    const std::size_t extended = limbs + ring.size_p();
    const Words first = ring.polynomial(limbs);
    lift_coefficients(ring, sparse.get(), 0, first.get(), 0, limbs);
    ring.forward(first.get(), limbs);
    const Digits digits{limbs, 1, extended * ring.degree(), ring.polynomial(extended), 0, false};
    Word* special = digits.words.get() + limbs * ring.degree();
    lift_coefficients(ring, second, 0, digits.words.get(), 0, limbs);
    lift_coefficients(ring, second, 0, special, ring.size_q(), ring.size_p());
    Limbs values{extended, 0, limbs};
    values.add(digits.words.get(), digits.words.get());
    ring.forward(values);
    const Addends rest = times_special(ring, first.get(), nullptr, limbs);
    return std::move(switched(ring, {{digits.of(0), &*keys.to_dense, 1, rest}}, limbs)[0]);
}

Polys raised_mean(const Ring& ring, const Polys& x, const EvaluationKeys& keys, std::size_t limbs) {
    const Words sparse = under_sparse_secret(ring, x, *keys.to_sparse);
    const Word* const second = sparse.get() + ring.degree();
    const std::size_t extended = limbs + ring.size_p();
    const int log_run = std::min(log_raised_copies, most_log_run(ring.log_degree()));
    const std::size_t size = extended * (ring.degree() >> log_run);
    const Words first = ring.polynomial(limbs);
    launch(first.size(),
           MeanOfCopies{ring.log_degree(), ring.primes(), sparse.get(), first.get()},
           "mean of copies");
    ring.forward(first.get(), limbs);
    const Digits digits{limbs, raised_copies, raised_copies * size,
                        Words(ring.memory(), raised_copies * size), log_run, false};
    launch(digits.words.size(),
           DigitsOfCopies{ring.log_degree(), log_run, limbs, extended, ring.size_q(), ring.primes(),
                          second, digits.words.get()},
           "digits of a mean of copies");
    for (std::size_t digit = 0; digit < raised_copies;) {
        Limbs values{extended, 0, limbs, log_run};
        while (digit < raised_copies && values.polynomials < together()) {
            Word* own = digits.words.get() + digit++ * size;
            values.add(own, own);
        }
        ring.forward(values);
    }
    const Addends rest = times_special(ring, first.get(), nullptr, limbs);
    return std::move(switched(ring, {{digits.of(0), &*keys.copies_to_dense, 1, rest}}, limbs)[0]);
}

}  // namespace atlasc::ckks
