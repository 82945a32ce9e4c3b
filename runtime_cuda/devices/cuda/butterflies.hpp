// Transforms by butterflies, of residues (NTT) and of complex numbers (Fourier). Long vectors take two
// passes: each reads and writes every number once, and does half of the stages in the memory of a
// block. Short vectors take one: a block holds several whole ones.
//
// A stage has nodes m .. 2m - 1, m = 1, 2, 4, ...; node m + i pairs the numbers of the i-th of m equal
// parts: the first half of the part with the second. Forwards the stages go from m = 1 on, and a pair
// (x, y) becomes (x + w y, x - w y) with the node's w; backwards it is the other way round, and a
// pair becomes (x + y, (x - y) w').
#pragma once

#include <cstddef>
#include <cstdint>

#include "devices/cuda/blocks.hpp"

namespace atlasc::ckks {

constexpr int log2_of(std::uint32_t power) {
    return power == 1 ? 0 : 1 + log2_of(power / 2);
}

/// Of a vector of 2^log_size numbers, the stages of the first pass of two, forwards.
ATLASC_DEVICE inline int first_stages(int log_size) { return log_size / 2; }

/// What a pass transforms by itself: numbers at the same distance from each other, as the first stages
/// pair them; numbers that lie together, as the last ones do; or all of a vector.
enum class Parts { columns, rows, vectors };

/// What a pass does with parts of vectors of 2^log_size numbers. A `Field` has vectors by number, each
/// with an `operand` to begin with, `get`, `set` and its arithmetic, unless it is `skipped`. An
/// arithmetic makes a `number` of an operand, has the `butterfly` of a node, and makes a result of a
/// number (`finished`). A block works on `Field::in_block` numbers: of a vector, or of several. Where they
/// are `held`, numbers of columns lie in its memory to begin with.
///
/// Sizes are powers of two, and places are 32 bits long: a division of 64 bits takes longer than a
/// butterfly. What a thread holds is chosen by constants, or else it would not stay in registers.
template <typename Field, bool forwards, Parts parts>
struct Stages {
    using Number = typename Field::Number;
    static constexpr std::uint32_t in_block = Field::in_block;
    static constexpr int log_in_block = log2_of(in_block);
    static constexpr unsigned threads = in_block / 8;
    static constexpr unsigned resident = 1024 / threads;  ///< with 64 registers a thread
    static constexpr bool columns = parts == Parts::columns;
    static constexpr bool vectors = parts == Parts::vectors;
    static constexpr bool begins = !Field::held && (vectors || columns == forwards);
    static constexpr bool ends = vectors || columns != forwards;

    int log_size;

    ATLASC_DEVICE int stages() const {
        const int first = vectors ? 0 : first_stages(log_size);
        return columns ? first : log_size - first;
    }
    /// Of three stages each.
    ATLASC_DEVICE int steps() const { return (stages() + 2) / 3; }

    /// A thread's eight numbers, `u` of them by turns, of a part of a vector, which lies in the block's
    /// memory as its `own`: up to three stages in registers.
    template <typename Vector, typename Memory>
    ATLASC_DEVICE void butterflies(const Vector& vector, std::uint32_t part, std::uint32_t own,
                                   std::uint32_t u, int step, const Memory& memory) const {
        const int many = stages();
        // Forwards from the first stage on; backwards the same groups from the last on.
        const int first = 3 * (forwards ? step : steps() - 1 - step);
        const int together = many - first < 3 ? many - first : 3;
        const int log_distance = together == 3 ? many - first - 3 : 0;
        const std::uint32_t start =
            (u >> log_distance << (log_distance + 3)) + (u & ((1U << log_distance) - 1));

        const bool from_memory = columns ? Field::held || step != 0 : !forwards || step != 0;
        const bool to_memory = columns ? step != steps() - 1 : forwards || step != steps() - 1;
        Number x[8];
        for (std::uint32_t e = 0; e < 8; ++e) {
            const std::uint32_t index = start + (e << log_distance);
            if (from_memory) {
                x[e] = memory.get(in_memory(index, own));
            } else {
                const std::uint32_t place = in_vector(index, part);
                x[e] = begins ? vector.operand(place) : vector.get(place);
            }
        }
        const std::uint32_t root =
            parts == Parts::rows ? (1U << first_stages(log_size)) + part : 1;
        vector.with_arithmetic([&](const auto& arithmetic) {
            if (begins && step == 0) {
                for (std::uint32_t e = 0; e < 8; ++e) {
                    x[e] = arithmetic.number(x[e]);
                }
            }
            for (int turn = 0; turn < 3; ++turn) {
                const int log_apart = forwards ? 2 - turn : turn;
                if (log_apart >= together) {
                    continue;
                }
                const int stage = first + together - 1 - log_apart;
                for (std::uint32_t e = 0; e < 8; ++e) {
                    if ((e >> log_apart & 1) == 0) {
                        const std::uint32_t index = start + (e << log_distance);
                        const std::uint32_t node = (root << stage) + (index >> (many - stage));
                        arithmetic.butterfly(x[e], x[e + (1U << log_apart)], node, log_apart);
                    }
                }
            }
            if (ends && step == steps() - 1) {
                for (std::uint32_t e = 0; e < 8; ++e) {
                    x[e] = arithmetic.finished(x[e]);
                }
            }
        });
        for (std::uint32_t e = 0; e < 8; ++e) {
            const std::uint32_t index = start + (e << log_distance);
            if (to_memory) {
                memory.set(in_memory(index, own), x[e]);
            } else {
                vector.set(in_vector(index, part), x[e]);
            }
        }
    }

    /// Where a block's number lies in its memory. Numbers at distances of 4 and 8, which neighbouring
    /// threads have, would lie in the same of 16 banks: places differ by what becomes of bits 4 to 6.
    static ATLASC_DEVICE std::uint32_t spread(std::uint32_t at) {
        return columns ? at : at ^ (at >> 4 & 1) ^ (at >> 5 & 1) * 4 ^ (at >> 6 & 1) * 10;
    }

    ATLASC_DEVICE std::uint32_t in_memory(std::uint32_t index, std::uint32_t own) const {
        return columns ? (index << (log_in_block - stages())) + own
                       : spread((own << stages()) + index);
    }

private:
    ATLASC_DEVICE std::uint32_t in_vector(std::uint32_t index, std::uint32_t part) const {
        return columns ? (index << (log_size - stages())) + part : (part << stages()) + index;
    }
};

/// One pass over some vectors.
template <typename Field, bool forwards, Parts parts>
struct Pass : Stages<Field, forwards, parts> {
    using Part = Stages<Field, forwards, parts>;
    using Part::columns;
    using Part::in_block;
    using Part::log_in_block;
    using Part::log_size;
    using Part::stages;
    using Part::steps;
    using Part::threads;
    using Part::vectors;
    static constexpr std::size_t shared = in_block;

    std::uint32_t count;  ///< of vectors
    Field field;

    /// Parts that lie together are read or written in their order once more.
    ATLASC_DEVICE int phases() const { return steps() + (columns ? 0 : 1); }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, std::uint32_t block, std::uint32_t thread,
                                  const Memory& memory) const {
        if (!columns && phase == (forwards ? steps() : 0)) {
            for (std::uint32_t e = 0; e < 8; ++e) {
                in_order(block, e * threads + thread, memory);
            }
            return;
        }
        const int log_wide = log_in_block - stages();  // parts of a block
        const std::uint32_t wide = 1U << log_wide;
        const std::uint32_t own = columns ? thread & (wide - 1) : thread >> (stages() - 3);
        const std::uint32_t number = vectors ? (block << log_wide) + own : block >> log_blocks();
        if (number >= count) {
            return;
        }
        const auto vector = field.vector(number);
        if (!vector.skipped) {
            const std::uint32_t u =
                columns ? thread >> log_wide : thread & ((1U << (stages() - 3)) - 1);
            const std::uint32_t part =
                vectors ? 0 : ((block & ((1U << log_blocks()) - 1)) << log_wide) + own;
            const int step = columns || forwards ? phase : phase - 1;
            this->butterflies(vector, part, own, u, step, memory);
        }
    }

private:
    /// log2 of those that share a vector.
    ATLASC_DEVICE int log_blocks() const { return log_size - log_in_block; }

    /// A number of a block to its place in the vector, or from it, as neighbouring threads do it best.
    template <typename Memory>
    ATLASC_DEVICE void in_order(std::uint32_t block, std::uint32_t at, const Memory& memory) const {
        const std::uint32_t number =
            vectors ? (block << (log_in_block - log_size)) + (at >> log_size)
                    : block >> log_blocks();
        if (number >= count) {
            return;
        }
        const auto vector = field.vector(number);
        const std::uint32_t place = ((block << log_in_block) + at) & ((1U << log_size) - 1);
        if (vector.skipped) {
            return;
        }
        if (forwards) {
            vector.set(place, memory.get(Part::spread(at)));
        } else {
            memory.set(Part::spread(at), vector.operand(place));
        }
    }
};

template <bool forwards, Parts parts, typename Field>
void launch_pass(int log_size, std::size_t vectors, const Field& field, const char* name) {
    const std::size_t blocks = ((vectors << log_size) + Field::in_block - 1) / Field::in_block;
    launch_blocks(blocks,
                  Pass<Field, forwards, parts>{{log_size}, static_cast<std::uint32_t>(vectors), field},
                  name);
}

/// All vectors, in one pass or in two, of which the second works on what the first has written
/// (`Field::in_place`).
template <bool forwards, typename Field>
void transform(int log_size, std::size_t vectors, const Field& field, const char* name) {
    if (std::size_t{1} << log_size < Field::in_block) {
        launch_pass<forwards, Parts::vectors>(log_size, vectors, field, name);
        return;
    }
    constexpr Parts first = forwards ? Parts::columns : Parts::rows;
    constexpr Parts second = forwards ? Parts::rows : Parts::columns;
    launch_pass<forwards, first>(log_size, vectors, field, name);
    launch_pass<forwards, second>(log_size, vectors, field.in_place(), name);
}

}  // namespace atlasc::ckks
