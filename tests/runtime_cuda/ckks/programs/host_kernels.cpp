// Transforms and fast kernels of the host, against plain arithmetic, on random numbers and on the
// greatest ones. Prints what differs, nothing where all is right.
#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ring/chain.hpp"
#include "ckks/ring/transforms.hpp"
#include "devices/host/fast_kernels.hpp"
#include "devices/host/vectors/lanes.hpp"
#include "devices/host/vectors/ntt.hpp"
#include "rows.hpp"
#include "tests/runtime_cuda/conformance/programs.hpp"

namespace {

using namespace atlasc::ckks;
/// a b modulo X^N + 1 and q, by the definition.
Row convolution(const Row& a, const Row& b, const Prime& q) {
    Row out(a.size(), 0);
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < b.size(); ++j) {
            const Word term = multiply(a[i], b[j], q);
            Word& place = out[(i + j) % a.size()];
            place = i + j < a.size() ? add(place, term, q) : subtract(place, term, q);
        }
    }
    return out;
}

void transforms(const Chain& chain, int log_degree) {
    const std::size_t degree = std::size_t{1} << log_degree;
    auto memory = std::make_shared<Memory>(0);
    const Transforms made(*memory, log_degree, chain.q, 0);
    const auto limb = [](Word* out, const Word* in, std::size_t prime) {
        Limbs limbs{1, prime};
        limbs.add(out, in);
        return limbs;
    };
    for (std::size_t at = 0; at < chain.q.size(); ++at) {
        const Prime& q = chain.q[at];
        const std::string where = "N = 2^" + std::to_string(log_degree) + ", q = " +
                                  std::to_string(q.value) + ": ";
        const Row x = random_row(degree, q.value);
        Row y = x;
        made.forward(limb(y.data(), y.data(), at));
        expect(*std::max_element(y.begin(), y.end()) < q.value, where + "values are not reduced");
        Row back(degree);
        made.backward(limb(back.data(), y.data(), at));
        expect(back == x, where + "the way back");
        const Row largest(degree, q.value - 1);  // sums of these are the largest
        made.backward(limb(back.data(), largest.data(), at));
        made.forward(limb(back.data(), back.data(), at));
        expect(back == largest, where + "back and forth");
        made.forward(limb(back.data(), largest.data(), at));
        made.backward(limb(back.data(), back.data(), at));
        expect(back == largest, where + "forth and back");
        if (log_degree <= 11) {
            const Row other = random_row(degree, q.value);
            Row z = other;
            made.forward(limb(z.data(), z.data(), at));
            for (std::size_t place = 0; place < degree; ++place) {
                z[place] = multiply(z[place], y[place], q);
            }
            made.backward(limb(z.data(), z.data(), at));
            expect(z == convolution(x, other, q), where + "the product");
        }
    }
}

template <typename Kernel>
void write_to(Kernel& kernel, Word* out) {
    kernel.out = out;
}

void write_to(Combine& kernel, Word* out) {
    for (std::size_t of = 0; of < kernel.sums; ++of) {
        kernel.sum[of].out = out;
        out += (kernel.sum[of].parts * kernel.limbs) << kernel.log_degree;
    }
}

/// The launched kernel against itself, called for one element after another.
template <typename Kernel>
void same(Kernel kernel, std::size_t count, std::size_t written, const std::string& name) {
    const Row before = random_row(written, Word{1} << 29);  // below every prime
    Row fast = before;
    Row slow = before;
    write_to(kernel, fast.data());
    launch(count, kernel, "");
    write_to(kernel, slow.data());
    for (std::size_t at = 0; at < count; ++at) {
        kernel(at);
    }
    expect(fast == slow, name);
}

Row parts(const std::vector<Prime>& primes, std::size_t parts, std::size_t count,
          std::size_t degree) {
    Row all;
    for (std::size_t part = 0; part < parts; ++part) {
        const Row some = limbs(primes, 0, count, degree);
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

/// Two sums of both operands for each limb of the second one: the first is of the terms alone.
void combinations(const Ring& ring, const Source& a, const Source& b) {
    const std::size_t size = b.limbs * ring.degree();
    const double large = -0x1.234567p+90;
    // What is added, then the number of each term.
    const std::vector<std::vector<double>> all = {{0, 1, 1},     {0, 1, -1},        {large, 1},
                                                  {0, large},    {7, -1, large, 3}, {0},
                                                  {large, 1, 1}, {0, large, -large}};
    for (const std::vector<double>& numbers : all) {
        for (const std::uint32_t products : {1U, 8U}) {
            for (const Word times : {Word{1}, Combination::most_times}) {
                for (const bool accumulate : {false, true}) {
                    const auto terms = static_cast<std::uint32_t>(numbers.size() - 1);
                    Combine kernel{};
                    kernel.log_degree = ring.log_degree();
                    kernel.limbs = static_cast<std::uint32_t>(b.limbs);
                    kernel.primes = ring.primes();
                    kernel.sums = 2;
                    kernel.sum[0] = {2, 0, 0, 0, terms, accumulate, 1, nullptr};
                    kernel.sum[1] = {3, 0, products, terms, 2 * terms, accumulate, times, nullptr};
                    std::fill(kernel.product, kernel.product + products, Combine::Product{a, b});
                    for (std::size_t at = 0; at < 2 * numbers.size(); ++at) {
                        const double number = numbers[at % numbers.size()];
                        const Residues found = residues(ring, number, b.limbs);
                        std::copy(found.of, found.of + b.limbs, kernel.numbers + at * b.limbs);
                    }
                    for (std::uint32_t at = 0; at < 2 * terms; ++at) {
                        kernel.term[at] = {at % 2 == 0 ? a : b, 2};
                    }
                    same(kernel, 2 * size, 5 * size, "Combine");
                }
            }
        }
    }
}

void kernels(const Chain& chain, int log_degree) {
    const std::size_t degree = std::size_t{1} << log_degree;
    auto memory = std::make_shared<Memory>(0);
    const Ring ring(*memory, chain);
    std::vector<Prime> primes = chain.q;
    primes.insert(primes.end(), chain.special.begin(), chain.special.end());
    const std::size_t count = chain.q.size() - 1;
    const std::size_t size_p = chain.special.size();
    const Shape shape{log_degree, static_cast<std::uint32_t>(count)};
    const Row a = parts(primes, 2, count + 1, degree);
    const Row b = parts(primes, 2, count, degree);
    const Source of_a{a.data(), count + 1};
    const Source of_b{b.data(), count};
    const std::size_t all = 2 * count * degree;
    for (const int log_run : {0, 3, log_degree - 1}) {
        const Row plain = limbs(primes, 0, count, degree >> log_run);
        same(TimesPolynomial{shape, primes.data(), of_a, {plain.data(), log_run}, nullptr}, all,
             all, "TimesPolynomial");
    }
    combinations(ring, of_a, of_b);
    for (std::size_t from : {std::size_t{0}, count}) {
        same(Lift{log_degree, primes.data(), a.data() + (from == 0 ? 0 : count * degree), from, 0,
                  nullptr},
             count * degree, count * degree, "Lift");
    }
    const int top = static_cast<int>(count);
    const Divisor divisor = ring.divisor(top, false);
    same(Divide{log_degree, primes.data(), a.data(), b.data(), divisor.inverse, nullptr},
         count * degree, count * degree, "Divide");
    const std::size_t digits = 20;  // more products than a fast kernel adds up unreduced
    const Packing packing(chain, count + 1, size_p);  // the key reaches higher than the digits
    Row digit_words;
    Row key(2 * digits * packing.words());
    for (std::size_t digit = 0; digit < digits; ++digit) {
        for (std::size_t part = 0; part < 3; ++part) {
            Row some = limbs(primes, 0, part == 0 ? count : count + 1, degree);
            const Row special = limbs(primes, chain.q.size(), size_p, degree);
            some.insert(some.end(), special.begin(), special.end());
            if (part == 0) {
                digit_words.insert(digit_words.end(), some.begin(), some.end());
                continue;
            }
            Word* to = &key[(2 * digit + part - 1) * packing.words()];
            pack(packing, some.data(), to);
            expect(is_reduced(chain, packing, to), "packed residues");
            Row back(some.size());
            unpack(packing, to, back.data());
            expect(back == some, "unpacked residues");
            bool equal = true;
            for (std::size_t at = 0; at < some.size(); ++at) {
                const std::size_t limb = at / degree;
                equal = equal && unpacked(to + packing.start(limb), packing.bits(limb),
                                          at % degree) == some[at];
            }
            expect(equal, "a packed residue");
        }
    }
    const std::size_t extended = (count + size_p) * degree;
    const Row added = limbs(primes, 0, count, degree);
    for (const std::uint32_t galois : {1U, 5U, 25U, static_cast<std::uint32_t>(2 * degree - 1)}) {
        for (const bool accumulate : {false, true}) {
            const Addends addends =
                accumulate ? Addends{digit_words.data(), nullptr, count + size_p, nullptr}
                           : Addends{added.data(), added.data(), count, ring.special_products()};
            // The second time without some of the key's digits.
            for (const std::size_t gaps : {std::size_t{0}, std::size_t{3}}) {
                const Chain::Gap gap{count, 0, 2, gaps};
                same(InnerProduct{log_degree, count, chain.q.size(), size_p, digits - gaps,
                                  primes.data(), digit_words.data(), packing, gap, key.data(),
                                  addends, galois, inverse_galois(ring, galois), accumulate,
                                  nullptr},
                     extended, 2 * extended, "InnerProduct at X^" + std::to_string(galois));
            }
        }
    }
    const auto plain_of = [&](int log_run) {
        Row plain = limbs(primes, 0, count, degree >> log_run);
        const Row special = limbs(primes, chain.q.size(), size_p, degree >> log_run);
        plain.insert(plain.end(), special.begin(), special.end());
        return plain;
    };
    const Row plains[3] = {plain_of(0), plain_of(3), plain_of(log_degree - 1)};
    for (const bool accumulate : {false, true}) {
        SumOfProducts sum{log_degree, count, chain.q.size(), count + size_p, primes.data(), 3,
                          {}, accumulate, nullptr};
        // Two digits stand for the two parts of a ciphertext.
        sum.terms[0] = {{digit_words.data(), count + size_p}, {plains[0].data(), 0}};
        sum.terms[1] = {{digit_words.data() + extended, count + size_p}, {plains[1].data(), 3}};
        sum.terms[2] = {{digit_words.data(), count + size_p}, {plains[2].data(), log_degree - 1}};
        same(sum, 2 * extended, 2 * extended, "SumOfProducts");
        for (sum.count = 3; sum.count < SumOfProducts::most; ++sum.count) {
            sum.terms[sum.count] = sum.terms[0];
        }
        same(sum, 2 * extended, 2 * extended, "SumOfProducts of many terms");
        sum = {log_degree, count, chain.q.size(), count, primes.data(), 1, {}, accumulate, nullptr};
        sum.terms[0] = {of_a, {plains[0].data(), 0}};
        same(sum, all, all, "SumOfProducts of more limbs");
    }
    const BlockConstants block = ring.digit(0, count);
    with_size(block.size + 1, [&](auto size) {  // the last digit may have fewer primes than others
        Decompose<decltype(size)::value> kernel{log_degree, count, chain.q.size(), size_p,
                                                primes.size(), primes.data(), {}};
        Row found[2] = {Row(2 * extended), Row(2 * extended)};
        for (Row& row : found) {
            kernel.of[0] = {block, a.data(), b.data(), row.data()};
            kernel.of[1] = {block, b.data(), a.data(), row.data() + extended};
            for (std::size_t at = 0; &row == &found[0] && at < 2 * degree; ++at) {
                kernel(at);
            }
        }
        launch(2 * degree, kernel, "");
        expect(found[0] == found[1], "Decompose");
    });
    for (const double size : {0x1p40, 0x1p51, 0x1p70}) {
        std::uniform_real_distribution<double> number(-size, size);
        std::vector<Complex> slots(degree / 2);
        std::generate(slots.begin(), slots.end(), [&] {
            return Complex{number(generator), number(generator)};
        });
        slots[1] = {-0.4, 0.5};
        for (const std::size_t rest : {0, 15}) {
            same(Round{log_degree, count, count + size_p, chain.q.size(), primes.data(), rest,
                       slots.data(), nullptr},
                 degree, extended, "Round");
        }
    }
    const Stream stream{fresh_seed(), 3};
    same(Uniform{stream, log_degree, primes.data(), 1, nullptr}, count * degree / 4,
         count * degree, "Uniform");
    same(ErrorResidues{stream, log_degree, primes.data(), 1, count, nullptr}, degree / 8,
         count * degree, "ErrorResidues");
    const Row special = limbs(primes, chain.q.size(), size_p, degree);
    Row last = limbs(primes, count, 1, degree);
    last.insert(last.end(), special.begin(), special.end());
    for (const bool level : {false, true}) {
        const BlockConstants divisor_block = ring.divisor(level ? top : 0, true).block;
        with_size(divisor_block.size, [&](auto size) {
            same(Remainder<decltype(size)::value>{log_degree, count, primes.size(), primes.data(),
                                                  divisor_block, (level ? last : special).data(),
                                                  nullptr},
                 degree, count * degree, level ? "Remainder of a level" : "Remainder");
        });
    }
}

void all() {
    for (const int log_degree : {11, 12, 13, 16, 17}) {  // odd and even numbers of stages
        const atlasc::Interface interface = conformance::leveled(log_degree, 2, 2);
        atlasc::Parameters parameters = interface.parameters;
        parameters.moduli->primes = {50, 43, 30, 42};  // on both sides of 2^42
        parameters.moduli->special = {50, 50};
        for (int kind = 0; kind < 2; ++kind) {
            transforms(chain_of(parameters), log_degree);
            if (log_degree < 13) {
                kernels(chain_of(parameters), log_degree);
            }
            parameters.moduli->primes = {60, 60, 50, 58};  // some limbs fast, some not
            parameters.moduli->special = {60, 50};
        }
    }
    atlasc::Parameters parameters = conformance::leveled(11, 2, 2).parameters;
    parameters.moduli->primes = std::vector<int>(10, 50);
    parameters.moduli->special = std::vector<int>(8, 50);  // as many as a key switch can have
    kernels(chain_of(parameters), 11);
}

}  // namespace

int main() {
    try {
        all();
    } catch (const atlasc::Error& error) {
        std::cerr << error.what() << ": " << error.why << '\n';
        return 2;
    }
    return 0;
}
