// Products of digits and keys that end the transforms of the digits, and begin those of the limbs that
// a division needs as coefficients. The values of digits lie in the memory of a block alone: digits
// are read once, as their first pass leaves them, and only the results are written.
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
    ATLASC_DEVICE std::size_t values() const { return of[0].values; }
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
    ATLASC_DEVICE std::size_t values() const { return ~std::size_t{0}; }
    std::size_t places() const { return sum.places(); }
    int log_degree() const { return sum.log_degree; }
};

struct KeyTables {
    const Modulus* moduli;
    const Word* forwards;
    const Word* backwards;
};

/// A block computes a few rows of a result modulo one prime, which are parts of the last pass
/// forwards and of the first one backwards: a rotation takes a row to a row. It transforms the same
/// rows of digits, one beside the other, and multiplies them. Where there are more digits than a
/// block has room for, they take turns. The sums of both parts lie in the block's memory between
/// turns, and before their own transforms.
template <typename Products>
struct KeyRows {
    using Rows = Stages<ResidueVectors<true>, true, Parts::rows>;
    using Back = Stages<ResidueVectors<false>, false, Parts::rows>;
    using Number = Word;
    using Count = std::uint32_t;
    static constexpr Count in_block = Rows::in_block;
    static constexpr unsigned threads = Rows::threads;
    static constexpr unsigned resident = Rows::resident;
    static constexpr std::size_t shared = 2 * in_block;  ///< rows of digits, then sums

    Products products;
    KeyTables tables;
    Rows rows;
    int log_rows;  ///< of a result that a block computes

    KeyRows(const Products& all, const KeyTables& tables)
        : products(all), tables(tables), rows{all.log_degree()}, log_rows(0) {
        const Count least = std::max(items(), Count{2});  // two parts of sums take as much room
        while ((2 * least) << log_rows <= in_block >> rows.stages()) {
            ++log_rows;
        }
    }

    std::size_t blocks() const {
        return products.results() * products.places() >> (rows.stages() + log_rows);
    }
    ATLASC_DEVICE int phases() const {
        return turns() * (rows.steps() + 1) + (products.values() < ~std::size_t{0} ? rows.steps() : 0);
    }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, Count block, Count thread,
                                  const Memory& memory) const {
        const int turn = phase / (rows.steps() + 1);
        const int step = phase % (rows.steps() + 1);
        // Results share a key, or else the nodes of a limb, so that one block follows the other.
        const Count result = block % products.results();
        const Count group = block / products.results();
        const int log_groups = first_stages(rows.log_size) - log_rows;
        const Work work{result, group >> log_groups,
                        (group & ((1U << log_groups) - 1)) << log_rows,
                        static_cast<Count>(turn) * at_once()};
        if (turn == turns()) {
            transform_back(work, step, thread, memory);
        } else if (step < rows.steps()) {
            transform(work, step, thread, memory);
        } else {
            for (Count at = thread; at < 1U << (log_rows + rows.stages()); at += threads) {
                multiply(work, at, memory);
            }
        }
    }

private:
    struct Work {
        Count result;
        Count limb;
        Count row;    ///< first one
        Count first;  ///< digit of a turn
    };

    /// Digits of all terms.
    ATLASC_DEVICE Count items() const { return products.terms() * products.digits(); }
    ATLASC_DEVICE Count at_once() const { return in_block >> (rows.stages() + log_rows); }
    ATLASC_DEVICE int turns() const {
        return static_cast<int>((items() + at_once() - 1) / at_once());
    }
    /// Where a sum lies in memory, of a part at a place of the rows.
    ATLASC_DEVICE Count sum_at(Count part, Count at) const {
        const Count rows_before = part << (log_rows + rows.stages());
        return in_block + Back::spread(rows_before + at);
    }

    /// A place of a part of the result.
    ATLASC_DEVICE Word* out(const Work& work, Count part, Count place) const {
        const InnerProduct& any = products.term(work.result, 0);
        const auto limb = static_cast<Count>(part * (any.limbs + any.size_p)) + work.limb;
        return products.out(work.result) + ((limb << rows.log_size) + place);
    }

    template <typename Memory>
    ATLASC_DEVICE void transform(const Work& work, int step, Count thread,
                                 const Memory& memory) const {
        const int log_threads = rows.stages() - 3;
        const Count own = thread >> log_threads;
        const Count item = work.first + (own >> log_rows);
        if (item >= items()) {
            return;
        }
        const InnerProduct& one = products.term(work.result, item / products.digits());
        const Count digit = item % products.digits();
        if (digit >= one.digits || digit == one.whole(work.limb)) {
            return;
        }
        const Count to = work.row + (own & ((1U << log_rows) - 1));
        const Count from =
            permuted(to << rows.stages(), one.galois, rows.log_size) >> rows.stages();
        const std::size_t prime = prime_of(work.limb, one.limbs, one.size_q);
        const std::size_t extended = one.limbs + one.size_p;
        ResidueVectors<true>::Limb vector{};
        vector.in = one.digit_words + ((digit * extended + work.limb) << rows.log_size);
        vector.modulus = tables.moduli + prime;
        vector.nodes = tables.forwards + (prime << rows.log_size);
        rows.butterflies(vector, from, own, thread & ((1U << log_threads) - 1), step, memory);
    }

    /// Both parts of one place, of the digits in memory.
    template <typename Memory>
    ATLASC_DEVICE void multiply(const Work& work, Count at, const Memory& memory) const {
        const Count start = work.limb << rows.log_size;
        const Count place = (work.row << rows.stages()) + at;
        const Count in_row = (1U << rows.stages()) - 1;
        const Count own = at >> rows.stages();
        const Count left = items() - work.first;
        const Count count = left < at_once() ? left : at_once();
        Wide b = 0;
        Wide a = 0;
        if (work.first != 0) {
            b = memory.get(sum_at(0, at));
            a = memory.get(sum_at(1, at));
        } else if (products.accumulate(work.result)) {
            b = *out(work, 0, place);
            a = *out(work, 1, place);
        }
        Count term = work.first / products.digits();
        Count digit = work.first % products.digits();
        for (Count item = 0; item < count; ++item, ++digit) {
            if (digit == products.digits()) {
                digit = 0;
                ++term;
            }
            const InnerProduct& one = products.term(work.result, term);
            const Count from = permuted(place, one.galois, rows.log_size);
            if (digit == 0) {
                one.add_addends(start + from, b, a);
            }
            if (digit < one.digits) {
                Word key_b;
                Word key_a;
                one.read(one.key_of(work.limb), digit, from, key_b, key_a);
                const Word x = digit == one.whole(work.limb)
                                   ? one.own[start + from]
                                   : memory.get(rows.in_memory(from & in_row,
                                                               (item << log_rows) + own));
                b += static_cast<Wide>(x) * key_b;
                a += static_cast<Wide>(x) * key_a;
            }
        }
        const InnerProduct& any = products.term(work.result, 0);
        const Prime& q = any.primes[prime_of(work.limb, any.limbs, any.size_q)];
        if (count == left && work.limb < products.values()) {
            *out(work, 0, place) = reduce(b, q);
            *out(work, 1, place) = reduce(a, q);
        } else {
            memory.set(sum_at(0, at), reduce(b, q));
            memory.set(sum_at(1, at), reduce(a, q));
        }
    }

    /// The memory of sums.
    template <typename Memory>
    struct Sums {
        const Memory& memory;

        ATLASC_DEVICE Word get(Count at) const { return memory.get(in_block + at); }
        ATLASC_DEVICE void set(Count at, Word x) const { memory.set(in_block + at, x); }
    };

    template <typename Memory>
    ATLASC_DEVICE void transform_back(const Work& work, int step, Count thread,
                                      const Memory& memory) const {
        const int log_threads = rows.stages() - 3;
        const Count own = thread >> log_threads;
        const Count part = own >> log_rows;
        if (work.limb < products.values() || part > 1) {
            return;
        }
        const InnerProduct& one = products.term(work.result, 0);
        const std::size_t prime = prime_of(work.limb, one.limbs, one.size_q);
        ResidueVectors<false>::Limb vector{};
        vector.out = out(work, part, 0);
        vector.modulus = tables.moduli + prime;
        vector.nodes = tables.backwards + (prime << rows.log_size);
        const Back back{rows.log_size};
        back.butterflies(vector, work.row + (own & ((1U << log_rows) - 1)), own,
                         thread & ((1U << log_threads) - 1), step, Sums<Memory>{memory});
    }
};

}  // namespace atlasc::ckks
