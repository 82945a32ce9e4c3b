// Transforms by butterflies, of residues (NTT) and of complex numbers (Fourier), in two passes: each
// reads and writes every number once, and does half of the stages in the memory of a block.
//
// A stage has nodes m .. 2m - 1, m = 1, 2, 4, ...; node m + i pairs the numbers of the i-th of m equal
// parts: the first half of the part with the second. Forwards the stages go from m = 1 on, and a pair
// (x, y) becomes (x + w y, x - w y) with the node's w; backwards it is the other way round, and a
// pair becomes (x + y, (x - y) w').
#pragma once

#include <cstddef>

#include "devices/cuda/blocks.hpp"

namespace atlasc::ckks {

/// Of a vector of 2^log_size numbers, the stages of the first pass, forwards. Its parts are columns:
/// numbers at the same distance from each other; those of the second pass lie together.
ATLASC_DEVICE inline int first_stages(int log_size) { return log_size / 2; }

/// One pass over some vectors. A `Field` has vectors by number, each with `get`, `set`, the
/// `butterfly` of a node, and what becomes of a number at the end (`finished`), unless it is
/// `skipped`. A block works on `Field::in_block` numbers of a vector.
template <typename Field, bool forwards, bool columns>
struct Pass {
    using Number = typename Field::Number;
    static constexpr std::size_t in_block = Field::in_block;
    static constexpr unsigned threads = in_block / 8;
    static constexpr std::size_t shared = in_block;

    int log_size;
    Field field;

    ATLASC_DEVICE int stages() const {
        const int first = first_stages(log_size);
        return columns ? first : log_size - first;
    }
    /// Three stages each; parts that lie together are read or written in their order once more.
    ATLASC_DEVICE int steps() const { return (stages() + 2) / 3; }
    ATLASC_DEVICE int phases() const { return steps() + (columns ? 0 : 1); }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, std::size_t block, std::size_t thread,
                                  const Memory& memory) const {
        const std::size_t blocks = (std::size_t{1} << log_size) / in_block;
        const auto vector = field.vector(block / blocks);
        if (vector.skipped) {
            return;
        }
        const std::size_t part = block % blocks;
        constexpr bool ends_in_order = forwards;
        if (!columns && phase == (ends_in_order ? steps() : 0)) {
            for (std::size_t e = 0; e < 8; ++e) {
                const std::size_t at = e * threads + thread;
                if (ends_in_order) {
                    vector.set(part * in_block + at, vector.finished(memory.get(at)));
                } else {
                    memory.set(at, vector.get(part * in_block + at));
                }
            }
            return;
        }
        const int step = columns || forwards ? phase : phase - 1;
        butterflies(vector, part, thread, step, memory);
    }

private:
    /// A thread's eight numbers of one part: up to three stages in registers.
    template <typename Vector, typename Memory>
    ATLASC_DEVICE void butterflies(const Vector& vector, std::size_t part, std::size_t thread,
                                   int step, const Memory& memory) const {
        const int count = stages();
        const std::size_t size = std::size_t{1} << count;  // of a part of the pass
        const std::size_t wide = in_block / size;          // parts of a block
        const std::size_t own = columns ? thread % wide : thread / (size / 8);
        const std::size_t u = columns ? thread / wide : thread % (size / 8);
        // Forwards from the first stage on; backwards the same groups from the last on.
        const int first = 3 * (forwards ? step : steps() - 1 - step);
        const int together = count - first < 3 ? count - first : 3;
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
        const std::size_t root = columns ? 1 : (std::size_t{1} << first_stages(log_size)) +
                                                   part * wide + own;
        for (int at = 0; at < together; ++at) {
            const int stage = forwards ? first + at : first + together - 1 - at;
            const std::size_t apart = (size >> (stage + 1)) / distance;
            for (std::size_t e = 0; e < 8; ++e) {
                if ((e & apart) == 0) {
                    const std::size_t node = (root << stage) + (index[e] >> (count - stage));
                    vector.butterfly(x[e], x[e + apart], node);
                }
            }
        }
        for (std::size_t e = 0; e < 8; ++e) {
            if (to_memory) {
                memory.set(in_memory(index[e], own, size, wide), x[e]);
            } else {
                const bool last = columns ? !forwards : forwards;
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
        if (!columns) {
            return part * in_block + own * size + index;
        }
        const std::size_t apart = std::size_t{1} << (log_size - first_stages(log_size));
        return index * apart + part * wide + own;
    }
};

/// Both passes over `vectors` vectors; the second works on what the first has written
/// (`Field::in_place`).
template <bool forwards, typename Field>
void transform(int log_size, std::size_t vectors, const Field& field, const char* name) {
    const std::size_t blocks = vectors * (std::size_t{1} << log_size) / Field::in_block;
    launch_blocks(blocks, Pass<Field, forwards, forwards>{log_size, field}, name);
    launch_blocks(blocks, Pass<Field, forwards, !forwards>{log_size, field.in_place()}, name);
}

}  // namespace atlasc::ckks
