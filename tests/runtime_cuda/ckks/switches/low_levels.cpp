// Key switches with fewer special primes, against the same ones with all of them. Prints what differs,
// and the number of special primes for each number of primes of Q.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ckks/keys/key_switch.hpp"
#include "tests/runtime_cuda/ckks/programs/rows.hpp"

namespace {

using namespace atlasc::ckks;

constexpr int log_degree = 11;
constexpr std::size_t degree = std::size_t{1} << log_degree;

SwitchKey random_key(const Ring& ring) {
    const Chain& chain = ring.chain();
    std::vector<Prime> primes = chain.q;
    primes.insert(primes.end(), chain.special.begin(), chain.special.end());
    const Packing packing(chain, ring.size_q(), ring.size_p());
    const std::size_t parts = 2 * ring.digits(ring.size_q());
    SwitchKey key{packing, Words(ring.memory(), parts * packing.words())};
    for (std::size_t part = 0; part < parts; ++part) {
        const Words values = uploaded(ring.memory(), limbs(primes, 0, primes.size(), degree));
        pack(packing, values.get(), key.words.get() + part * packing.words());
    }
    return key;
}

/// Both parts.
Row words_of(const Polys& x) { return downloaded(x.words.get(), x.words.size()); }

/// The only digit of a polynomial modulo all primes: what `low` computes, and zeros.
Digits extended(const Ring& ring, const Ring& low, const Row& x, const Digits& digits) {
    Row all = downloaded(digits.words.get(), digits.size);
    std::copy(x.begin(), x.end(), all.begin());
    all.resize(all.size() + (ring.size_p() - low.size_p()) * degree, 0);
    return {digits.limbs, 1, all.size(), uploaded(ring.memory(), all)};
}

/// The first special prime's residue of a digit of one prime: R y, where |y| < q/2 is x / R modulo q.
void check_multiple(const Ring& low, const Row& x, const Digits& digits) {
    const Chain& chain = low.chain();
    const Prime& q = chain.q[0];
    const Prime& p = chain.special[0];
    const Words values = uploaded(low.memory(), x);
    low.backward(values.get(), values.get(), 1);
    const Row coefficients = downloaded(values.get(), degree);
    Words digit = low.polynomial(1);
    low.backward(digit.get(), digits.words.get() + degree, 1, low.size_q());
    const Row found = downloaded(digit.get(), degree);
    for (std::size_t at = 0; at < degree; ++at) {
        Word y = coefficients[at];
        Word factor = 1;
        for (std::size_t left = low.size_p(); left < chain.special.size(); ++left) {
            const Word prime = chain.special[left].value;
            y = multiply(y, inverse(prime, q), q);
            factor = multiply(factor, reduce(prime, p), p);
        }
        const Word size = reduce(y > q.value / 2 ? q.value - y : y, p);
        const Word centred = y > q.value / 2 ? negate(size, p) : size;
        if (found[at] != multiply(centred, factor, p)) {
            expect(false, "a digit of one prime at " + std::to_string(at));
            return;
        }
    }
}

void compare(const Ring& ring, const SwitchKey& key, int level) {
    const Chain& chain = ring.chain();
    const std::size_t count = chain.limbs_at(level);
    const Ring& low = ring.switching(count);
    std::cout << "special " << low.size_p() << '\n';
    const Row x = limbs(chain.q, 0, count, degree);
    const Words polynomial = uploaded(ring.memory(), x);
    const Words first = uploaded(ring.memory(), limbs(chain.q, 0, count, degree));
    const Words second = uploaded(ring.memory(), limbs(chain.q, 0, count, degree));
    const Digits several = decomposed(low, {polynomial.get()}, count, false);
    if (&low == &ring) {
        return;
    }
    if (count == 1) {
        check_multiple(low, x, several);
    }
    const Digits once = decomposed(low, {polynomial.get()}, count, true);
    const Digits whole = extended(ring, low, x, several);
    for (const std::uint32_t galois : {1U, 5U, static_cast<std::uint32_t>(2 * degree - 1)}) {
        for (const int divided_by : {0, level}) {
            const auto by = [&](const Ring& own, const Digits& digits) {
                const Addends addends =
                    times_special(own, first.get(), second.get(), count);
                const Switched one{digits.of(0), &key, galois, addends};
                return words_of(switched(own, {one}, count, divided_by)[0]);
            };
            const Row expected = by(ring, whole);
            const std::string where = " of " + std::to_string(count) + " primes, galois " +
                                      std::to_string(galois) + ", level " +
                                      std::to_string(divided_by);
            expect(by(low, several) == expected, "a switch" + where);
            if (!once.begun || galois == 1) {
                expect(by(low, once) == expected, "a fused switch" + where);
            }
        }
    }
}

}  // namespace

int main() {
    const atlasc::Moduli moduli{{50, 40, 40, 40, 40, 40}, {50, 50, 45, 50}, 40, {}};
    const Chain chain = chain_of({degree / 2, 5, std::nullopt, 1, moduli});
    const auto memory = std::make_shared<Memory>(0);
    const Ring ring(*memory, chain);
    const SwitchKey key = random_key(ring);
    for (int level = 0; level <= chain.top(); ++level) {
        compare(ring, key, level);
    }
    return 0;
}
