// Products of digits and keys that end the transforms of the digits. The values of digits lie in the
// memory of a block alone: digits are read once, as their first pass leaves them, and only the results
// are written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ckks/ring/switch_kernels.hpp"
#include "devices/cuda/blocks.hpp"
#include "devices/cuda/vectors.hpp"

namespace atlasc::ckks {

/// A result for each of some products, which have as many digits and primes.
struct EachProduct {
    static constexpr std::size_t most = 4;

    std::size_t count;
    InnerProduct of[most];

    ATLASC_DEVICE std::uint32_t results() const { return static_cast<std::uint32_t>(count); }
    ATLASC_DEVICE std::uint32_t terms() const { return 1; }
    ATLASC_DEVICE std::uint32_t digits() const {
        return static_cast<std::uint32_t>(of[0].digits);
    }
    ATLASC_DEVICE const InnerProduct& term(std::uint32_t result, std::uint32_t) const {
        return of[result];
    }
    ATLASC_DEVICE bool accumulate(std::uint32_t result) const { return of[result].accumulate; }
    ATLASC_DEVICE Word* out(std::uint32_t result) const { return of[result].out; }
    std::size_t places() const { return of[0].places(); }
    int log_degree() const { return of[0].log_degree; }
};

/// One result.
struct SumOfEach {
    InnerProducts sum;

    ATLASC_DEVICE std::uint32_t results() const { return 1; }
    ATLASC_DEVICE std::uint32_t terms() const { return static_cast<std::uint32_t>(sum.count); }
    ATLASC_DEVICE std::uint32_t digits() const { return static_cast<std::uint32_t>(sum.digits); }
    ATLASC_DEVICE const InnerProduct& term(std::uint32_t, std::uint32_t number) const {
        return sum.terms[number];
    }
    ATLASC_DEVICE bool accumulate(std::uint32_t) const { return sum.accumulate; }
    ATLASC_DEVICE Word* out(std::uint32_t) const { return sum.out; }
    std::size_t places() const { return sum.places(); }
    int log_degree() const { return sum.log_degree; }
};

/// A block computes a few rows of a result modulo one prime, which are parts of the last pass: a
/// rotation takes a row to a row. It transforms the same rows of digits, one beside the other, and
/// multiplies them. Where there are more digits than a block has room for, they take turns, and
/// the block's memory has the sums of one row between them.
template <typename Products>
struct KeyRows {
    using Rows = Stages<ResidueVectors<true>, true, Parts::rows>;
    using Number = Word;
    using Count = std::uint32_t;
    static constexpr Count in_block = Rows::in_block;
    static constexpr unsigned threads = Rows::threads;
    static constexpr unsigned resident = Rows::resident;
    static constexpr std::size_t most_in_row = std::size_t{1} << (most_log_degree + 1) / 2;
    static constexpr std::size_t shared = in_block + 2 * most_in_row;  ///< rows, then sums

    Products products;
    const Modulus* moduli;
    const Word* nodes;
    Rows rows;
    int log_rows;  ///< of a result that a block computes

    KeyRows(const Products& all, const Modulus* moduli, const Word* nodes)
        : products(all), moduli(moduli), nodes(nodes), rows{all.log_degree()}, log_rows(0) {
        while ((2 * items()) << log_rows <= in_block >> rows.stages()) {
            ++log_rows;
        }
    }

    std::size_t blocks() const {
        return products.results() * products.places() >> (rows.stages() + log_rows);
    }
    ATLASC_DEVICE int phases() const {
        return static_cast<int>((items() + at_once() - 1) / at_once()) * (rows.steps() + 1);
    }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, Count block, Count thread,
                                  const Memory& memory) const {
        const int turn = phase / (rows.steps() + 1);
        const int step = phase % (rows.steps() + 1);
        const Count first = static_cast<Count>(turn) * at_once();
        // Results share a key, or else the nodes of a limb, so that one block follows the other.
        const Count result = block % products.results();
        const Count group = block / products.results();
        const int log_groups = first_stages(rows.log_size) - log_rows;
        const Count limb = group >> log_groups;
        const Count row = (group & ((1U << log_groups) - 1)) << log_rows;
        if (step < rows.steps()) {
            transform(first, result, limb, row, step, thread, memory);
            return;
        }
        for (Count at = thread; at < 1U << (log_rows + rows.stages()); at += threads) {
            multiply(first, result, limb, row, at, memory);
        }
    }

private:
    /// Digits of all terms.
    ATLASC_DEVICE Count items() const { return products.terms() * products.digits(); }
    ATLASC_DEVICE Count at_once() const { return in_block >> (rows.stages() + log_rows); }

    template <typename Memory>
    ATLASC_DEVICE void transform(Count first, Count result, Count limb, Count row, int step,
                                 Count thread, const Memory& memory) const {
        const int log_threads = rows.stages() - 3;
        const Count own = thread >> log_threads;
        const Count item = first + (own >> log_rows);
        if (item >= items()) {
            return;
        }
        const InnerProduct& one = products.term(result, item / products.digits());
        const Count digit = item % products.digits();
        if (digit >= one.digits || digit == one.whole(limb)) {
            return;
        }
        const Count to = row + (own & ((1U << log_rows) - 1));
        const Count from =
            permuted(to << rows.stages(), one.galois, rows.log_size) >> rows.stages();
        const std::size_t prime = prime_of(limb, one.limbs, one.size_q);
        const std::size_t extended = one.limbs + one.size_p;
        ResidueVectors<true>::Limb vector{};
        vector.in = one.digit_words + ((digit * extended + limb) << rows.log_size);
        vector.modulus = moduli + prime;
        vector.nodes = nodes + (prime << rows.log_size);
        rows.butterflies(vector, from, own, thread & ((1U << log_threads) - 1), step, memory);
    }

    /// Both parts of one place, of the digits in memory.
    template <typename Memory>
    ATLASC_DEVICE void multiply(Count first, Count result, Count limb, Count row, Count at,
                                const Memory& memory) const {
        const std::size_t start = static_cast<std::size_t>(limb) << rows.log_size;
        const Count place = (row << rows.stages()) + at;
        const Count in_row = (1U << rows.stages()) - 1;
        const std::size_t sums = in_block + (at & in_row);
        const Count left = items() - first;
        const Count count = left < at_once() ? left : at_once();
        const InnerProduct& any = products.term(result, 0);
        Word* const b_out = products.out(result) + start + place;
        Word* const a_out = b_out + ((any.limbs + any.size_p) << rows.log_size);
        Wide b = 0;
        Wide a = 0;
        if (first != 0) {
            b = memory.get(sums);
            a = memory.get(sums + most_in_row);
        } else if (products.accumulate(result)) {
            b = *b_out;
            a = *a_out;
        }
        Count term = first / products.digits();
        Count digit = first % products.digits();
        for (Count item = 0; item < count; ++item, ++digit) {
            if (digit == products.digits()) {
                digit = 0;
                ++term;
            }
            const InnerProduct& one = products.term(result, term);
            const Count from = permuted(place, one.galois, rows.log_size);
            if (digit == 0) {
                one.add_addends(start + from, b, a);
            }
            if (digit < one.digits) {
                Word key_b;
                Word key_a;
                one.read(one.key_of(limb), digit, from, key_b, key_a);
                const Count own = (item << log_rows) + (at >> rows.stages());
                const Word x = digit == one.whole(limb)
                                   ? one.own[start + from]
                                   : memory.get(rows.in_memory(from & in_row, own));
                b += static_cast<Wide>(x) * key_b;
                a += static_cast<Wide>(x) * key_a;
            }
        }
        const Prime& q = any.primes[prime_of(limb, any.limbs, any.size_q)];
        if (count == left) {
            *b_out = reduce(b, q);
            *a_out = reduce(a, q);
        } else {
            memory.set(sums, reduce(b, q));
            memory.set(sums + most_in_row, reduce(a, q));
        }
    }
};

template <typename Products>
void launch_rows(const Products& products, const Modulus* moduli, const Word* nodes) {
    const KeyRows<Products> kernel(products, moduli, nodes);
    launch_blocks(kernel.blocks(), kernel, "products of digits and keys");
}

}  // namespace atlasc::ckks
