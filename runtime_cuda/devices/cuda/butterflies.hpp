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

#include "devices/cuda/blocks.hpp"

namespace atlasc::ckks {

/// Of a vector of 2^log_size numbers, the stages of the first pass of two, forwards.
ATLASC_DEVICE inline int first_stages(int log_size) { return log_size / 2; }

/// What a pass transforms by itself: numbers at the same distance from each other, as the first stages
/// pair them; numbers that lie together, as the last ones do; or all of a vector.
enum class Parts { columns, rows, vectors };

/// One pass over some vectors of 2^log_size numbers. A `Field` has vectors by number, each with `get`,
/// `set`, the `butterfly` of a node, and what becomes of a number at the end (`finished`), unless it
/// is `skipped`. A block works on `Field::in_block` numbers: of a vector, or of several.
template <typename Field, bool forwards, Parts parts>
struct Pass {
    using Number = typename Field::Number;
    static constexpr std::size_t in_block = Field::in_block;
    static constexpr unsigned threads = in_block / 8;
    static constexpr std::size_t shared = in_block;
    static constexpr bool columns = parts == Parts::columns;
    static constexpr bool vectors = parts == Parts::vectors;

    int log_size;
    std::size_t count;  ///< of vectors
    Field field;

    ATLASC_DEVICE int stages() const {
        const int first = vectors ? 0 : first_stages(log_size);
        return columns ? first : log_size - first;
    }
    /// Three stages each; parts that lie together are read or written in their order once more.
    ATLASC_DEVICE int steps() const { return (stages() + 2) / 3; }
    ATLASC_DEVICE int phases() const { return steps() + (columns ? 0 : 1); }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, std::size_t block, std::size_t thread,
                                  const Memory& memory) const {
        if (!columns && phase == (forwards ? steps() : 0)) {
            for (std::size_t e = 0; e < 8; ++e) {
                in_order(block, e * threads + thread, memory);
            }
            return;
        }
        const std::size_t size = std::size_t{1} << stages();  // of a part
        const std::size_t wide = in_block / size;             // parts of a block
        const std::size_t own = columns ? thread % wide : thread / (size / 8);
        const std::size_t number = vectors ? block * wide + own : block / blocks();
        if (number >= count) {
            return;
        }
        const auto vector = field.vector(number);
        if (!vector.skipped) {
            const std::size_t u = columns ? thread / wide : thread % (size / 8);
            const int step = columns || forwards ? phase : phase - 1;
            butterflies(vector, block % blocks(), own, u, step, memory);
        }
    }

private:
    /// That share a vector.
    ATLASC_DEVICE std::size_t blocks() const {
        return vectors ? 1 : (std::size_t{1} << log_size) / in_block;
    }

    /// A number of a block to its place in the vector, or from it, as neighbouring threads do it best.
    template <typename Memory>
    ATLASC_DEVICE void in_order(std::size_t block, std::size_t at, const Memory& memory) const {
        const std::size_t whole = block * in_block + at;
        const std::size_t number = whole >> log_size;
        if (number >= count) {
            return;
        }
        const auto vector = field.vector(number);
        const std::size_t place = whole - (number << log_size);
        if (vector.skipped) {
            return;
        }
        if (forwards) {
            vector.set(place, vector.finished(memory.get(at)));
        } else {
            memory.set(at, vector.get(place));
        }
    }

    /// A thread's eight numbers, `u` of them by turns, of its own part: up to three stages in
    /// registers.
    template <typename Vector, typename Memory>
    ATLASC_DEVICE void butterflies(const Vector& vector, std::size_t part, std::size_t own,
                                   std::size_t u, int step, const Memory& memory) const {
        const int many = stages();
        const std::size_t size = std::size_t{1} << many;
        const std::size_t wide = in_block / size;
        // Forwards from the first stage on; backwards the same groups from the last on.
        const int first = 3 * (forwards ? step : steps() - 1 - step);
        const int together = many - first < 3 ? many - first : 3;
        const std::size_t distance = together == 3 ? size >> (first + 3) : 1;

        const bool from_memory = columns ? step != 0 : !forwards || step != 0;
        const bool to_memory = columns ? step != steps() - 1 : forwards || step != steps() - 1;
        std::size_t index[8];
        Number x[8];
        for (std::size_t e = 0; e < 8; ++e) {
            index[e] = u / distance * 8 * distance + e * distance + u % distance;
            x[e] = from_memory ? memory.get(in_memory(index[e], own, size, wide))
                               : vector.get(in_vector(index[e], own, part, wide, size));
        }
        const std::size_t root =
            parts == Parts::rows
                ? (std::size_t{1} << first_stages(log_size)) + part * wide + own
                : 1;
        for (int at = 0; at < together; ++at) {
            const int stage = forwards ? first + at : first + together - 1 - at;
            const std::size_t apart = (size >> (stage + 1)) / distance;
            for (std::size_t e = 0; e < 8; ++e) {
                if ((e & apart) == 0) {
                    const std::size_t node = (root << stage) + (index[e] >> (many - stage));
                    vector.butterfly(x[e], x[e + apart], node);
                }
            }
        }
        for (std::size_t e = 0; e < 8; ++e) {
            if (to_memory) {
                memory.set(in_memory(index[e], own, size, wide), x[e]);
            } else {
                const bool last = vectors || columns != forwards;
                vector.set(in_vector(index[e], own, part, wide, size),
                           last ? vector.finished(x[e]) : x[e]);
            }
        }
    }

    static ATLASC_DEVICE std::size_t in_memory(std::size_t index, std::size_t own,
                                               std::size_t size, std::size_t wide) {
        return columns ? index * wide + own : own * size + index;
    }

    ATLASC_DEVICE std::size_t in_vector(std::size_t index, std::size_t own, std::size_t part,
                                        std::size_t wide, std::size_t size) const {
        if (vectors) {
            return index;
        }
        if (!columns) {
            return part * in_block + own * size + index;
        }
        const std::size_t apart = std::size_t{1} << (log_size - first_stages(log_size));
        return index * apart + part * wide + own;
    }
};

/// All vectors, in one pass or in two, of which the second works on what the first has written
/// (`Field::in_place`).
template <bool forwards, typename Field>
void transform(int log_size, std::size_t count, const Field& field, const char* name) {
    const std::size_t blocks =
        ((count << log_size) + Field::in_block - 1) / Field::in_block;
    if (std::size_t{1} << log_size < Field::in_block) {
        launch_blocks(blocks, Pass<Field, forwards, Parts::vectors>{log_size, count, field}, name);
        return;
    }
    constexpr Parts first = forwards ? Parts::columns : Parts::rows;
    constexpr Parts second = forwards ? Parts::rows : Parts::columns;
    launch_blocks(blocks, Pass<Field, forwards, first>{log_size, count, field}, name);
    launch_blocks(blocks, Pass<Field, forwards, second>{log_size, count, field.in_place()}, name);
}

}  // namespace atlasc::ckks
