// Transforms in doubles against those in integers, and the bounds of devices/cuda/moduli.hpp. Prints
// what differs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ring/ring.hpp"
#include "devices/cuda/moduli.hpp"
#include "forced.hpp"
#include "tests/runtime_cuda/ckks/programs/rows.hpp"

namespace {

using namespace atlasc::ckks;

std::vector<Prime> all_primes(const Chain& chain) {
    std::vector<Prime> primes = chain.q;
    primes.insert(primes.end(), chain.special.begin(), chain.special.end());
    return primes;
}

Transforms made(const char* arithmetic, Memory& memory, int log_degree, const Chain& chain) {
    const Forced forced(arithmetic);
    return Transforms(memory, log_degree, all_primes(chain), chain.special.size());
}

/// The arithmetic modulo each prime, by 2^52 X^(N/2) at a place for words below 2^50: a double that
/// is made of its bits is 0, while integers transform it as any number.
void choice() {
    constexpr int log_degree = 11;
    const Chain primes = chain(log_degree, {60, 51, 50, 40});
    const auto memory = std::make_shared<Memory>(0);
    const Transforms transforms(*memory, log_degree, all_primes(primes), 2);
    Row row(primes.q.size() << log_degree);
    for (std::size_t at = 0; at < primes.q.size(); ++at) {
        row[(2 * at + 1) << (log_degree - 1)] = Word{1} << 52;
    }
    Limbs limbs{primes.q.size()};
    limbs.add(row.data(), row.data());
    transforms.forward(limbs);
    for (std::size_t at = 0; at < primes.q.size(); ++at) {
        std::cout << (row[at << log_degree] == 0 ? "doubles" : "integers") << '\n';
    }
}

/// Up to so many times q, of either sign; often as much as that.
double within(double times, const Prime& q) {
    const auto most = static_cast<Word>(times * static_cast<double>(q.value));
    const Word size = generator() % 2 == 0 ? most - generator() % 4 : generator() % (most + 1);
    return generator() % 2 == 0 ? static_cast<double>(size) : -static_cast<double>(size);
}

/// A factor by which y becomes a residue next to q/2, where a product is largest.
Word worst_factor(double y, const Prime& q) {
    const Word half = q.value / 2 + generator() % 2;
    const Word of = residue(y, q);
    return of == 0 ? half : multiply(half, inverse(of, q), q);
}

/// Products of as much as 4q, and their bound.
void products(const Prime& q) {
    const Doubles doubles = Doubles::of(q);
    const std::string where = "q = " + std::to_string(q.value) + ": ";
    for (int at = 0; at < 100000; ++at) {
        const double y = within(4, q);
        const Word factor = at % 4 == 0   ? q.value / 2 + generator() % 2
                            : at % 4 == 1 ? generator() % q.value
                                          : worst_factor(y, q);
        const double w = Doubles::from_bits(Doubles::factor(factor, q));
        expect(std::abs(w) <= doubles.q / 2, where + "a factor");
        const double found = doubles.lazy_product(y, w);
        expect(residue(found, q) == multiply(residue(y, q), factor, q), where + "a product");
        expect(std::abs(found) <= doubles.q * (0.5 + std::abs(y) * 0x1p-53), where + "its bound");
        const double x = within(8, q);
        const double small = doubles.settled(x);
        expect(residue(small, q) == residue(x, q), where + "a reduction");
        expect(std::abs(small) <= (doubles.q + 1) / 2, where + "the bound of a reduction");
    }
}

/// Three stages of eight numbers that are as large as a step may find them.
template <bool forwards>
void steps(const Prime& q) {
    const Doubles doubles = Doubles::of(q);
    const double start = forwards ? 1.35 : 2;
    const std::array<double, 3> bounds =
        forwards ? std::array<double, 3>{2.02, 2.78, 1.35} : std::array<double, 3>{1, 2, 1};
    const std::string where = "q = " + std::to_string(q.value) + ", " +
                              (forwards ? "forwards" : "backwards") + ": ";
    for (int round = 0; round < 5000; ++round) {
        std::array<Word, 8> numbers{};
        for (Word& number : numbers) {
            number = Doubles::to_bits(within(start, q));
        }
        for (std::size_t turn = 0; turn < 3; ++turn) {
            const auto log_apart = static_cast<int>(forwards ? 2 - turn : turn);
            for (std::size_t e = 0; e < 8; ++e) {
                if ((e >> log_apart & 1) != 0) {
                    continue;
                }
                Word& first = numbers[e];
                Word& second = numbers[e + (std::size_t{1} << log_apart)];
                const double x = Doubles::from_bits(first);
                const double y = Doubles::from_bits(second);
                const Word w = worst_factor(forwards ? y : x - y, q);
                doubles.butterfly<forwards>(first, second, Doubles::factor(w, q), log_apart);
                const Word a = residue(x, q);
                const Word b = residue(y, q);
                const Word product = multiply(forwards ? b : subtract(a, b, q), w, q);
                const double found_x = Doubles::from_bits(first);
                const double found_y = Doubles::from_bits(second);
                expect(residue(found_x, q) == add(a, forwards ? product : b, q) &&
                           residue(found_y, q) == (forwards ? subtract(a, product, q) : product),
                       where + "a butterfly");
                const double most = bounds[turn] * doubles.q + 1;
                expect(std::abs(found_x) <= most && std::abs(found_y) <= most,
                       where + "the bound of stage " + std::to_string(turn));
            }
        }
    }
}

/// Coefficients of which each stage of the transform adds another (q - 1)/2 to the largest number, at
/// all first places of the last eight stages or fewer.
Row chained(const Prime& q, int log_degree, bool negative) {
    const std::size_t degree = std::size_t{1} << log_degree;
    const Word root = root_of(q, degree);
    Row row(degree, 0);
    const std::size_t many = log_degree > 8 ? degree >> 8 : 1;
    for (std::size_t at = 0; at < many; ++at) {
        row[at] = negative ? 0 : q.value - 1;
        for (int stage = 0; degree >> (stage + 1) >= many; ++stage) {
            // The first node of a stage has the root of x^(2m) = -1.
            const Word w = power(root, degree >> (stage + 1), q);
            const Word half = negative ? q.value / 2 + 1 : q.value / 2;
            row[at + (degree >> (stage + 1))] = multiply(half, inverse(w, q), q);
        }
    }
    return row;
}

/// Operands with the largest numbers, and random ones.
std::vector<std::function<Row(const Prime&)>> operands(int log_degree, int random) {
    const std::size_t degree = std::size_t{1} << log_degree;
    const auto by_place = [degree](const std::function<Word(std::size_t, Word)>& number) {
        return [degree, number](const Prime& q) {
            Row row(degree);
            for (std::size_t at = 0; at < degree; ++at) {
                row[at] = number(at, q.value);
            }
            return row;
        };
    };
    std::vector<std::function<Row(const Prime&)>> all = {
        by_place([](std::size_t, Word q) { return q - 1; }),
        by_place([](std::size_t at, Word q) { return at % 2 == 0 ? 0 : q - 1; }),
        by_place([degree](std::size_t at, Word q) { return at < degree / 2 ? 0 : q - 1; }),
        by_place([](std::size_t at, Word q) { return q / 2 + at % 2; }),
        by_place([](std::size_t, Word q) { return q / 2 - 1 + generator() % 4; }),
        [log_degree](const Prime& q) { return chained(q, log_degree, false); },
        [log_degree](const Prime& q) { return chained(q, log_degree, true); },
    };
    for (int at = 0; at < random; ++at) {
        all.push_back([degree](const Prime& q) { return random_row(degree, q.value); });
    }
    return all;
}

/// Both ways, of polynomials in X^(2^log_run) too; returns the number of residues compared.
std::size_t transforms(int log_degree, const std::vector<int>& bits, int random) {
    const Chain chain = ::chain(log_degree, bits);
    const std::vector<Prime> primes = all_primes(chain);
    const auto memory = std::make_shared<Memory>(0);
    const Transforms integers = made("integers", *memory, log_degree, chain);
    const Transforms doubles = made("doubles", *memory, log_degree, chain);
    std::size_t compared = 0;
    const auto compare = [&](const std::string& what, Limbs limbs, const Row& before,
                             const auto& run) {
        Row expected(before.size());
        Row found(before.size());
        Limbs others = limbs;
        limbs.add(expected.data(), before.data());
        others.add(found.data(), before.data());
        run(integers, limbs);
        run(doubles, others);
        const std::size_t size = before.size() / primes.size();
        for (std::size_t at = 0; at < primes.size(); ++at) {
            const auto start = static_cast<std::ptrdiff_t>(at * size);
            const auto end = static_cast<std::ptrdiff_t>((at + 1) * size);
            expect(std::equal(expected.begin() + start, expected.begin() + end,
                              found.begin() + start),
                   what + " of 2^" + std::to_string(log_degree) + " modulo " +
                       std::to_string(primes[at].value));
        }
        compared += before.size();
        return expected;
    };
    const auto each = [&](const auto& make) {
        Row all;
        for (const Prime& q : primes) {
            const Row row = make(q);
            all.insert(all.end(), row.begin(), row.end());
        }
        return all;
    };
    const auto forward = [](const Transforms& by, const Limbs& limbs) { by.forward(limbs); };
    const auto backward = [](const Transforms& by, const Limbs& limbs) { by.backward(limbs); };
    const Limbs whole{primes.size(), 0, chain.q.size()};
    for (const auto& make : operands(log_degree, random)) {
        const Row before = each(make);
        compare("backwards", whole, before, backward);
        const Row values = compare("forwards", whole, before, forward);
        // Large sums lead to large coefficients.
        expect(compare("back again", whole, values, backward) == before, "there and back");
    }
    for (const int log_run : {1, 3, log_degree - 5, log_degree - 4}) {
        Limbs shorter = whole;
        shorter.log_run = log_run;
        for (const auto& make : operands(log_degree - log_run, 1)) {
            compare("in runs, forwards", shorter, each(make), forward);
        }
    }
    return compared;
}

/// What transforms begin and end with: conversions, divisions, factors; some limbs stay as they are.
std::size_t fused(int log_degree, const std::vector<int>& bits) {
    const auto memory = std::make_shared<Memory>(0);
    std::vector<Row> results;
    for (const char* arithmetic : {"integers", "doubles"}) {
        const Forced forced(arithmetic);
        const Ring ring(*memory, chain(log_degree, bits));
        generator.seed(11);
        const Chain& chain = ring.chain();
        const std::size_t count = chain.q.size();
        const Divisor divisor = ring.divisor(chain.top(), true);
        const std::size_t below = count - 1;
        const Row value = limbs(chain.q, 0, count, ring.degree());
        std::vector<Prime> own(divisor.block.own, divisor.block.own + divisor.block.size);
        for (const bool largest : {false, true}) {
            Row block = limbs(own, 0, own.size(), ring.degree());
            for (std::size_t at = 0; largest && at < block.size(); ++at) {
                block[at] = own[at / ring.degree()].value - 1;
            }
            const Row random = limbs(chain.q, 0, below, ring.degree());
            Row out(random);
            Row quotients(random);
            Limbs remainders{below, 0, below};
            remainders.converts = true;
            remainders.blocks[0] = divisor.block;
            remainders.inverses = divisor.inverse;
            remainders.dividends[0] = value.data();
            remainders.quotients[0] = quotients.data();
            remainders.add(out.data(), block.data(), 1, 2);
            ring.forward(remainders);
            results.push_back(quotients);

            Row converted(value);
            Limbs digits{count};
            digits.converts = true;
            digits.blocks[0] = divisor.block;
            digits.add(converted.data(), block.data());
            ring.forward(digits);
            results.push_back(converted);

            Row coefficients(value);
            Limbs scaled{count};
            scaled.scales = ring.digit_inverses(count);
            scaled.add(coefficients.data(), value.data());
            ring.backward(scaled);
            results.push_back(coefficients);
        }
    }
    const std::size_t half = results.size() / 2;
    std::size_t compared = 0;
    for (std::size_t at = 0; at < half; ++at) {
        const char* names[] = {"divided", "converted", "with factors"};
        expect(results[at] == results[at + half], names[at % 3]);
        compared += results[at].size();
    }
    return compared;
}

int run(const std::string& what, const std::vector<int>& numbers) {
    if (what == "choice") {
        choice();
    } else if (what == "bounds") {
        for (const Prime& q : chain(11, numbers).q) {
            products(q);
            steps<true>(q);
            steps<false>(q);
        }
    } else {
        const std::vector<int> bits(numbers.begin() + 2, numbers.end());
        std::cerr << transforms(numbers[0], bits, numbers[1]) + fused(numbers[0], bits) << '\n';
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::vector<int> numbers;
        for (int at = 2; at < argc; ++at) {
            numbers.push_back(std::atoi(argv[at]));
        }
        return run(argv[1], numbers);
    } catch (const atlasc::Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
}
