// Conversions to other primes in doubles against those in integers, and the bounds of their sums
// (devices/cuda/conversions.hpp). Prints what differs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ring/ring.hpp"
#include "devices/cuda/conversions.hpp"
#include "forced.hpp"
#include "tests/runtime_cuda/ckks/programs/rows.hpp"

namespace {

using namespace atlasc::ckks;

/// Sums of as many products as a conversion has, of the largest residues and factors: all of one sign,
/// or of any.
void sums(const Prime& q) {
    const Modulus modulus = Modulus::of(q, true);
    const std::string where = "q = " + std::to_string(q.value) + ": ";
    constexpr Word largest = (Word{1} << 50) - 1;
    for (std::size_t at = 0; at < 20000; ++at) {
        const std::size_t terms = 1 + at % BlockConstants::most_balanced;
        const bool alike = generator() % 2 == 0;
        const auto factor = [&] {
            const auto half = static_cast<double>(q.value / 2 - (alike ? 0 : generator() % 2));
            return at % 4 < 2 || (!alike && generator() % 2 == 0) ? half : -half;
        };
        SumInDoubles sum;
        Word expected = 0;
        const auto count = [&](double f, Word y) {
            expected = add(expected, multiply(residue(f, q), reduce(y, q), q), q);
        };
        for (std::size_t term = 0; term < terms; ++term) {
            if (term == SumInDoubles::most) {
                sum.fold(modulus);
            }
            const Word y = at % 3 == 0 ? largest - generator() % 4 : generator() & largest;
            const double f = factor();
            sum.add(y, SumInDoubles::number(y), f);
            count(f, y);
            expect(std::abs(sum.low) <= 0x1p53, where + "the bound of low");
            expect(sum.high >= 0x1p103 && sum.high < 0x1p104, where + "the bounds of high");
        }
        const double minus = factor();
        count(minus, terms);
        const double found = Doubles::from_bits(
            sum.result(static_cast<double>(terms), minus, q, modulus));
        expect(residue(found, q) == expected, where + "a sum");
        expect(std::abs(found) <= (modulus.doubles.q + 1) / 2, where + "the bound of a sum");
    }
}

/// A residue modulo each of a block's primes for each place. By turns they are random, the largest, next
/// to half, and such that the sum modulo a prime is as large as can be, of either sign.
Row block_residues(const std::vector<Prime>& own, const BlockConstants& block,
                   std::size_t all, std::size_t degree) {
    Row rows(own.size() * degree);
    for (std::size_t s = 0; s < own.size(); ++s) {
        const Word b = own[s].value;
        for (std::size_t at = 0; at < degree; ++at) {
            const double factor =
                block.balanced == nullptr
                    ? 0.0
                    : block.balanced[at / 8 % all * BlockConstants::rows + s];
            const Word choices[] = {generator() % b, b - 1, b / 2 + generator() % 2,
                                    factor < 0 ? b - 1 : 0, factor < 0 ? 0 : b - 1,
                                    0, b / 2, generator() % b};
            rows[s * degree + at] = choices[at % 8];
        }
    }
    return rows;
}

/// Blocks of a ring with so many special primes, converted to all primes: every one of a ring of degree
/// 2^12, and half as many in one of twice the degree. Returns
/// how many residues were compared, and the primes of the largest block of sums in doubles.
std::array<std::size_t, 2> conversions(int log_degree, std::size_t special,
                                       const std::vector<int>& bits) {
    const auto memory = std::make_shared<Memory>(0);
    std::vector<Row> results[2];
    std::size_t largest = 0;
    for (const bool doubles : {false, true}) {
        const Forced forced(doubles ? "doubles" : "integers");
        const Ring ring(*memory, chain(log_degree, bits, special));
        generator.seed(7);
        const std::size_t count = ring.size_q();
        std::vector<BlockConstants> blocks;
        for (std::size_t limbs = 1; limbs <= count; ++limbs) {
            blocks.push_back(ring.digit(ring.digits(limbs) - 1, limbs));
        }
        for (int level = 0; level <= ring.chain().top(); ++level) {
            blocks.push_back(ring.divisor(level, true).block);
        }
        const std::size_t apart = std::max(ring.degree() >> 12, std::size_t{1});
        for (std::size_t at = 0; at < blocks.size(); at += apart) {
            const BlockConstants& block = blocks[blocks.size() - 1 - at];
            const std::vector<Prime> own(block.own, block.own + block.size);
            const Row residues = block_residues(own, block, ring.size_qp(), ring.degree());
            Row out(ring.size_qp() * ring.degree(), 0);
            Limbs limbs{ring.size_qp(), 0, count};
            limbs.converts = true;
            limbs.blocks[0] = block;
            limbs.add(out.data(), residues.data());
            ring.forward(limbs);
            results[doubles ? 1 : 0].push_back(out);
            largest = std::max(largest, block.balanced == nullptr ? 0 : block.size);
        }
    }
    std::size_t compared = 0;
    for (std::size_t at = 0; at < results[0].size(); ++at) {
        expect(results[0][at] == results[1][at], "block " + std::to_string(at));
        compared += results[0][at].size();
    }
    return {compared, largest};
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argv[1];
    std::vector<int> numbers;
    for (int at = 2; at < argc; ++at) {
        numbers.push_back(std::atoi(argv[at]));
    }
    try {
        if (what == "bounds") {
            for (const Prime& q : chain(11, numbers).q) {
                sums(q);
            }
        } else {
            const auto [compared, largest] =
                conversions(numbers[0], static_cast<std::size_t>(numbers[1]),
                            {numbers.begin() + 2, numbers.end()});
            std::cerr << compared << ' ' << largest << '\n';
        }
    } catch (const atlasc::Error& error) {
        std::cerr << "error: " << error.what() << ": " << error.why << '\n';
        return 2;
    }
    return 0;
}
