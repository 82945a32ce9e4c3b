#include "devices/host/check_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "atlasc/base/error.hpp"
#include "devices/host/vectors/vector_kernels.hpp"

namespace atlasc::ckks {
namespace {

using Row = std::vector<Word>;

constexpr std::size_t length = 64;
constexpr std::size_t terms = 16;  ///< more products than a kernel adds up unreduced

void require(bool right, const char* kernel) {
    if (!right) {
        throw Error(std::string("this build of the engine computes wrong numbers: its kernel ") +
                        kernel + " is not exact",
                    "it was compiled with flags that change arithmetic, such as -ffast-math, or "
                    "by a compiler with a fault",
                    "build it again without them; or set ATLASC_CPU=portable, which is slower");
    }
}

/// Rows of numbers: the ends of the range first, then any.
class Numbers {
public:
    Row row(Word bound, std::size_t size = length) {
        const Word ends[] = {0, 1, bound - 1, bound - 2, bound / 2, bound / 2 + 1};
        Row row(size);
        for (std::size_t at = 0; at < size; ++at) {
            row[at] = at < size / 2 ? ends[next() % 6] : next() % bound;
        }
        return row;
    }

private:
    /// SplitMix64 (Steele, Lea and Flood 2014).
    Word next() {
        Word x = state_ += 0x9e3779b97f4a7c15ULL;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31);
    }

    Word state_ = 1;
};

/// `kernel(out)` against `plain(at, out before)`.
template <typename Kernel, typename Plain>
void compare(const char* name, const Row& before, const Kernel& kernel, const Plain& plain) {
    Row fast = before;
    kernel(fast.data());
    for (std::size_t at = 0; at < before.size(); ++at) {
        require(fast[at] == plain(at, before[at]), name);
    }
}

void check_rows(const VectorKernels& run, const Prime& q, Numbers& numbers) {
    const Row a = numbers.row(q.value);
    const Row b = numbers.row(q.value);
    const Row c = numbers.row(q.value);
    const Word factor = numbers.row(q.value).back();
    compare("add", c, [&](Word* out) { run.add(out, a.data(), b.data(), length, q); },
            [&](std::size_t at, Word) { return add(a[at], b[at], q); });
    compare("subtract", c, [&](Word* out) { run.subtract(out, a.data(), b.data(), length, q); },
            [&](std::size_t at, Word) { return subtract(a[at], b[at], q); });
    for (const int log_run : {0, 3}) {
        const PlainValues plain{b.data(), log_run};
        compare("multiply", c, [&](Word* out) { run.multiply(out, a.data(), plain, length, q); },
                [&](std::size_t at, Word) { return multiply(a[at], plain[at], q); });
    }
    for (const Word number : {factor, q.value - 1}) {
        compare("plus_number", c,
                [&](Word* out) { run.plus_number(out, a.data(), number, length, q); },
                [&](std::size_t at, Word) { return add(a[at], number, q); });
        compare("divide", c,
                [&](Word* out) { run.divide(out, a.data(), b.data(), number, length, q); },
                [&](std::size_t at, Word) {
                    return multiply(subtract(a[at], b[at], q), number, q);
                });
        std::vector<double> sums(length, 0.5);
        compare("scale", c,
                [&](Word* out) { run.scale(out, sums.data(), a.data(), number, length, q); },
                [&](std::size_t at, Word) {
                    const Word y = multiply(a[at], number, q);
                    const double sum =
                        0.5 + static_cast<double>(y) / static_cast<double>(q.value);
                    require(std::fabs(sums[at] - sum) < 0x1p-50, "scale");
                    return y;
                });
    }
    for (const bool accumulate : {false, true}) {
        std::vector<std::uint32_t> from(length);
        for (std::size_t at = 0; at < length; ++at) {
            from[at] = static_cast<std::uint32_t>(length + (at ^ 21));  // eight of eight
        }
        compare("permute", c,
                [&](Word* out) {
                    run.permute(out, a.data(), from.data(), length, accumulate, length, q);
                },
                [&](std::size_t at, Word old) {
                    const Word own = a[from[at] - length];
                    return accumulate ? add(own, old, q) : own;
                });
    }
    std::vector<double> integers(length);
    for (std::size_t at = 0; at < length; ++at) {
        const auto size = static_cast<double>(numbers.row(Word{1} << 52, 8)[at % 8]);
        integers[at] = at % 2 == 0 ? size : -size;
    }
    compare("residues", c, [&](Word* out) { run.residues(out, integers.data(), length, q); },
            [&](std::size_t at, Word) {
                const Word size = reduce(static_cast<Word>(std::fabs(integers[at])), q);
                return integers[at] < 0 ? negate(size, q) : size;
            });
}

/// A residue for each place, without gaps.
Row packed(const Row& row, std::size_t bits) {
    Row words(row.size() * bits / 64 + 1, 0);
    for (std::size_t at = 0; at < row.size(); ++at) {
        const std::size_t start = at * bits;
        words[start / 64] |= row[at] << start % 64;
        if (start % 64 + bits > 64) {
            words[start / 64 + 1] |= row[at] >> (64 - start % 64);
        }
    }
    return words;
}

void check_sums(const VectorKernels& run, const Prime& q, Numbers& numbers) {
    std::vector<Row> rows;
    for (std::size_t at = 0; at < 6; ++at) {
        rows.push_back(numbers.row(q.value));
    }
    for (const bool first : {false, true}) {
        Row d[3] = {rows[4], rows[5], rows[0]};
        run.add_product({d[0].data(), d[1].data(), d[2].data()}, {rows[0].data(), rows[1].data()},
                        {rows[2].data(), rows[3].data()}, length, first, q);
        for (std::size_t at = 0; at < length; ++at) {
            const auto before = [&](const Row& row) { return first ? 0 : row[at]; };
            const auto product = [&](std::size_t one, std::size_t other) {
                return multiply(rows[one][at], rows[other][at], q);
            };
            const Word middle = add(product(0, 3), product(1, 2), q);
            require(d[0][at] == add(before(rows[4]), product(0, 2), q) &&
                        d[1][at] == add(before(rows[5]), middle, q) &&
                        d[2][at] == add(before(rows[0]), product(1, 3), q),
                    "add_product");
        }
    }
    const Row x = numbers.row(q.value, terms * length);
    const Row other = numbers.row(q.value, terms * length);
    const auto sum_at = [&](std::size_t at, Word sum) {
        for (std::size_t term = 0; term < terms; ++term) {
            sum = add(sum, multiply(x[term * length + at], other[term * length + at], q), q);
        }
        return sum;
    };
    lanes::Term products[terms];
    for (std::size_t term = 0; term < terms; ++term) {
        products[term] = {&x[term * length], {&other[term * length], 0}};
    }
    for (const bool accumulate : {false, true}) {
        compare("sum_of_products", rows[0],
                [&](Word* out) { run.sum_of_products(out, products, terms, accumulate, length, q); },
                [&](std::size_t at, Word old) { return sum_at(at, accumulate ? old : 0); });
    }
    constexpr std::size_t rows_of_product = 4;
    const Row matrix = numbers.row(q.value, terms * rows_of_product);
    Row results(rows_of_product * length);
    Word* out_rows[rows_of_product];
    for (std::size_t row = 0; row < rows_of_product; ++row) {
        out_rows[row] = &results[row * length];
    }
    Row pairs(rows_of_product, 0);
    for (std::size_t at = 0; at < matrix.size(); ++at) {
        if (at / rows_of_product % 2 == 0) {
            Word& pair = pairs[at % rows_of_product];
            pair = add(pair, multiply(matrix[at], matrix[at + rows_of_product], q), q);
        }
    }
    constexpr std::size_t half = length / 2;  // the other one is not written
    run.matrix_product(out_rows, half, &x[half], length, terms, matrix.data(), pairs.data(),
                       rows_of_product, half, q);
    for (std::size_t at = 0; at < results.size(); ++at) {
        Word sum = 0;
        for (std::size_t term = 0; at % length >= half && term < terms; ++term) {
            const Word factor = matrix[term * rows_of_product + at / length];
            sum = add(sum, multiply(factor, x[term * length + at % length], q), q);
        }
        require(results[at] == sum, "matrix_product");
    }
    const Row hats = numbers.row(q.value, terms);
    const Row u = numbers.row(terms + 1);
    compare("combine", rows[0],
            [&](Word* out) {
                run.combine(out, x.data(), length, terms, hats.data(), 1, u.data(), rows[1][0],
                            length, q);
            },
            [&](std::size_t at, Word) {
                Word sum = multiply(u[at], rows[1][0], q);
                for (std::size_t s = 0; s < terms; ++s) {
                    sum = add(sum, multiply(x[s * length + at], hats[s], q), q);
                }
                return sum;
            });
    // Both parts of a key: `other`, in terms / 2 digits, and one addend.
    std::size_t bits = 0;
    while (q.value >> bits != 0) {
        ++bits;
    }
    Row key = packed(other, bits);
    key.push_back(0);
    Row second(length);
    compare("inner_product", rows[0],
            [&](Word* out) {
                run.inner_product(out, second.data(), x.data(), length, {key.data(), bits, 0}, bits,
                                  terms / 2, {rows[2].data(), nullptr, rows[1][0]}, length, q);
            },
            [&](std::size_t at, Word) {
                Word b = multiply(rows[2][at], rows[1][0], q);
                Word a = 0;
                for (std::size_t digit = 0; digit < terms / 2; ++digit) {
                    const Word factor = x[digit * length + at];
                    b = add(b, multiply(factor, other[2 * digit * length + at], q), q);
                    a = add(a, multiply(factor, other[(2 * digit + 1) * length + at], q), q);
                }
                require(second[at] == a, "inner_product");
                return b;
            });
}

void check_chacha20(const VectorKernels& run) {
    const Seed seed = {{1, 2, 3, 4, 5, 6, 7, 0x80000000U}};
    const std::uint32_t nonce[3] = {8, 9, 0xffffffffU};
    std::uint32_t words[16][16];
    run.chacha20(words, seed, 0xfffffff0U, 4, nonce);
    for (std::uint32_t block = 0; block < 16; ++block) {
        std::uint32_t expected[16];
        chacha20(seed, 0xfffffff0U + 4 * block, nonce, expected);
        for (std::size_t word = 0; word < 16; ++word) {
            require(words[word][block] == expected[word], "chacha20");
        }
    }
}

}  // namespace

void check_kernels(const std::vector<Prime>& primes) {
    if (cpu() == Cpu::portable) {
        return;
    }
    const VectorKernels& run = vector_kernels();
    Numbers numbers;
    check_chacha20(run);
    const Prime* before = nullptr;
    for (const Prime& q : primes) {
        if (cpu_for(q.value) == Cpu::portable) {
            continue;
        }
        check_rows(run, q, numbers);
        check_sums(run, q, numbers);
        const Prime& from = before == nullptr ? q : *before;
        const Row x = numbers.row(from.value);
        compare("lift", x, [&](Word* out) { run.lift(out, x.data(), length, from, q); },
                [&](std::size_t at, Word) { return lift(x[at], from, q); });
        before = &q;
    }
}

}  // namespace atlasc::ckks
