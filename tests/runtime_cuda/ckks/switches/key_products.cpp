// Products of keys with digits whose transforms they end, against the same by single kernels. Prints
// what differs.
//
//     key_products PRIMES     of Q, beside one special prime: as many digits
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ckks/ring/ring.hpp"
#include "ckks/ring/switch_kernels.hpp"
#include "kernel.hpp"
#include "tests/runtime_cuda/ckks/programs/rows.hpp"

namespace {

using namespace atlasc::ckks;

constexpr int log_degree = 11;
constexpr std::size_t degree = std::size_t{1} << log_degree;

/// Coefficients of digits, and what they are multiplied by.
struct Operands {
    Operands(const Ring& ring, const std::vector<Prime>& primes, std::size_t limbs)
        : packing(ring.chain(), limbs, 1), own(::limbs(primes, 0, limbs, degree)) {
        for (std::size_t digit = 0; digit < limbs; ++digit) {
            append(digits, ::limbs(primes, 0, primes.size(), degree));
            for (std::size_t part = 0; part < 2; ++part) {
                Row packed(packing.words() + 1);
                pack(packing, ::limbs(primes, 0, primes.size(), degree).data(), packed.data());
                packed.pop_back();
                append(key, packed);
            }
        }
        for (std::size_t part = 0; part < 2; ++part) {
            append(addends, ::limbs(primes, 0, primes.size(), degree));
        }
    }

    static void append(Row& all, const Row& row) { all.insert(all.end(), row.begin(), row.end()); }

    Packing packing;
    Row own;
    Row digits;
    Row key;
    Row addends;
};

/// The digits modulo all primes but their own.
std::vector<Limbs> transforms_of(Row& digits, std::size_t limbs) {
    std::vector<Limbs> all;
    for (std::size_t digit = 0; digit < limbs; ++digit) {
        if (digit % Limbs::most == 0) {
            all.push_back({limbs + 1, 0, limbs});
        }
        Word* const own = digits.data() + digit * (limbs + 1) * degree;
        all.back().add(own, own, digit, digit + 1);
    }
    return all;
}

struct Comparison {
    const Ring& ring;
    std::size_t limbs;
    std::size_t size = 2 * (limbs + 1) * degree;

    InnerProduct product(const Operands& x, const Row& digits, std::uint32_t galois,
                         Word* out) const {
        std::uint32_t back = 1;
        while (static_cast<std::uint32_t>(back * galois) % (2 * degree) != 1) {
            back += 2;
        }
        const Addends addends{x.addends.data(), x.addends.data() + size / 2, limbs + 1, nullptr};
        return {log_degree, limbs, limbs, 1, limbs, ring.primes(), digits.data(), x.packing, {},
                x.key.data(), addends, galois, back, false, out, 0, x.own.data(),
                ring.digit_numbers()};
    }

    /// Each by itself: the limbs that are divided by are coefficients.
    void each(const std::vector<Operands>& some, std::uint32_t galois, bool accumulate) const {
        const std::size_t values = limbs - 1;
        const Row before(some[0].addends);
        std::vector<Row> expected(some.size(), before);
        std::vector<Row> found(some.size(), before);
        std::vector<Row> digits;
        std::vector<InnerProduct> products;
        for (std::size_t at = 0; at < some.size(); ++at) {
            Row whole = some[at].digits;
            digits.push_back(whole);
            for (const Limbs& values : transforms_of(whole, limbs)) {
                ring.forward(values);
            }
            InnerProduct plain = product(some[at], whole, galois, expected[at].data());
            plain.accumulate = accumulate;
            launch(plain.places(), plain, "a product");
            for (const Limbs& values : transforms_of(digits[at], limbs)) {
                ring.begin_forward(values);
            }
            products.push_back(product(some[at], digits[at], galois, found[at].data()));
            products.back().accumulate = accumulate;
            products.back().values = values;
        }
        ring.key_products(products);
        for (std::size_t at = 0; at < some.size(); ++at) {
            Limbs divided{2, limbs - 1, 1};
            Limbs begun{2, limbs - 1, 1};
            for (std::size_t part = 0; part < 2; ++part) {
                const std::size_t start = (part * (limbs + 1) + values) * degree;
                divided.add(expected[at].data() + start, expected[at].data() + start);
                begun.add(found[at].data() + start, found[at].data() + start);
            }
            ring.backward(divided);
            ring.end_backward(begun);
            expect(found[at] == expected[at], "product " + std::to_string(at) + " with galois " +
                                                  std::to_string(galois));
        }
    }

    void sum(const std::vector<Operands>& some, bool accumulate) const {
        Row expected = some[0].addends;
        Row found = expected;
        std::vector<Row> whole;
        std::vector<Row> begun;
        std::vector<InnerProduct> plain;
        std::vector<InnerProduct> products;
        std::uint32_t galois = 1;
        for (const Operands& x : some) {
            whole.push_back(x.digits);
            begun.push_back(x.digits);
            for (const Limbs& values : transforms_of(whole.back(), limbs)) {
                ring.forward(values);
            }
            for (const Limbs& values : transforms_of(begun.back(), limbs)) {
                ring.begin_forward(values);
            }
            plain.push_back(product(x, whole.back(), galois, nullptr));
            products.push_back(product(x, begun.back(), galois, nullptr));
            galois *= 5;
        }
        // One that is not rotated has addends alone.
        for (std::vector<InnerProduct>* terms : {&plain, &products}) {
            terms->push_back(product(some[0], whole[0], 1, nullptr));
            terms->back().digits = 0;
        }
        InnerProducts kernel{log_degree,   limbs,      limbs, 1,          ring.primes(),
                             plain.data(), plain.size(), limbs, accumulate, expected.data()};
        launch(kernel.places(), kernel, "a sum");
        kernel.terms = products.data();
        kernel.out = found.data();
        ring.key_products(kernel);
        expect(found == expected, "the sum of " + std::to_string(some.size()));
    }
};

}  // namespace

int main(int, char** arguments) {
    const std::size_t limbs = std::stoul(arguments[1]);
    const std::vector<int> bits(limbs, 40);
    const Chain chain = chain_of({degree / 2, static_cast<int>(limbs) - 1, std::nullopt, 1,
                                  atlasc::Moduli{bits, {40}, 30, {}}});
    std::vector<Prime> primes = chain.q;
    primes.insert(primes.end(), chain.special.begin(), chain.special.end());
    const auto memory = std::make_shared<Memory>(0);
    const Ring ring(*memory, chain);
    std::vector<Operands> some;
    for (std::size_t at = 0; at < 5; ++at) {
        some.emplace_back(ring, primes, limbs);
    }
    const Comparison comparison{ring, limbs};
    for (const std::uint32_t galois : {1U, 5U, static_cast<std::uint32_t>(2 * degree - 1)}) {
        comparison.each(some, galois, galois == 5);
    }
    some.pop_back();
    comparison.sum(some, false);
    comparison.sum(some, true);
    return 0;
}
