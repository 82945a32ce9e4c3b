// Products of rotated ciphertexts, tile by tile: the values of babies lie in the memory of a block
// while they are multiplied by the plaintexts of all sums. A rotation takes a tile to a tile.
#pragma once

#include <cstddef>

#include "ckks/ring/rotated_products.hpp"
#include "devices/cuda/blocks.hpp"

namespace atlasc::ckks {

/// A block computes all sums at the places of one tile of a limb. Its phases take turns: both parts
/// of some babies, then their products, which are added to those before.
struct RotatedTiles {
    using Number = Word;
    static constexpr std::size_t tile = 32;  ///< threads that run together read neighbours
    static constexpr std::size_t most = 96;  ///< babies in a block's memory; so many products fit a Wide
    static constexpr unsigned threads = 256;
    static constexpr std::size_t shared = most * 2 * tile;
    static constexpr std::size_t row = 8;  ///< sums that a thread has at a time

    RotatedProducts kernel;

    ATLASC_DEVICE std::size_t turns() const { return (kernel.count + most - 1) / most; }
    ATLASC_DEVICE int phases() const { return static_cast<int>(2 * turns()); }
    std::size_t blocks() const {
        return (kernel.extended() << kernel.log_degree) / tile;
    }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, std::size_t block, std::size_t thread,
                                  const Memory& memory) const {
        const std::size_t first = static_cast<std::size_t>(phase / 2) * most;
        const std::size_t own = kernel.count - first < most ? kernel.count - first : most;
        const std::size_t at = block * tile;
        const std::size_t limb = at >> kernel.log_degree;
        const Prime& q = kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)];
        if (phase % 2 == 0) {
            make(first, own, at, limb << kernel.log_degree, thread, q, memory);
        } else {
            multiply(first, own, at, thread, q, memory);
        }
    }

private:
    static ATLASC_DEVICE std::size_t in_memory(std::size_t baby, std::size_t part,
                                               std::size_t place) {
        return (baby * 2 + part) * tile + place;
    }

    /// A value is computed where a key and its digits have it, and goes to its place in the tile.
    template <typename Memory>
    ATLASC_DEVICE void make(std::size_t first, std::size_t own, std::size_t at,
                            std::size_t start, std::size_t thread, const Prime& q,
                            const Memory& memory) const {
        const std::size_t lane = thread % tile;
        for (std::size_t baby = thread / tile; baby < own; baby += threads / tile) {
            const InnerProduct& one = kernel.babies[first + baby];
            const bool turned = one.galois != 1;
            const auto place = static_cast<std::uint32_t>(at - start);
            const std::size_t from =
                turned ? permuted(place, one.galois, kernel.log_degree) / tile * tile + lane
                       : place + lane;
            const std::size_t to =
                turned ? permuted(static_cast<std::uint32_t>(from), one.back, kernel.log_degree) %
                             tile
                       : lane;
            Wide b;
            Wide a;
            one.products(start + from, b, a);
            memory.set(in_memory(baby, 0, to), reduce(b, q));
            memory.set(in_memory(baby, 1, to), reduce(a, q));
        }
    }

    /// One place of one part, of some sums.
    template <typename Memory>
    ATLASC_DEVICE void multiply(std::size_t first, std::size_t own, std::size_t at,
                                std::size_t thread, const Prime& q, const Memory& memory) const {
        const std::size_t lane = thread % tile;
        const std::size_t part = thread / tile % 2;
        const std::size_t place = at + lane;
        const std::size_t to = part * ((kernel.limbs + kernel.size_p) << kernel.log_degree) + place;
        constexpr std::size_t step = threads / tile / 2 * row;
        for (std::size_t sum = thread / tile / 2 * row; sum < kernel.sums; sum += step) {
            const std::size_t some = kernel.sums - sum < row ? kernel.sums - sum : row;
            Wide totals[row];
            for (std::size_t at_row = 0; at_row < row; ++at_row) {
                totals[at_row] = first != 0 && at_row < some ? kernel.out[sum + at_row][to] : 0;
            }
            for (std::size_t baby = 0; baby < own; ++baby) {
                const Word x = memory.get(in_memory(baby, part, lane));
                for (std::size_t at_row = 0; at_row < row; ++at_row) {
                    if (at_row >= some) {
                        continue;
                    }
                    const PlainValues& plain =
                        kernel.plains[(sum + at_row) * kernel.count + first + baby];
                    if (plain.words != nullptr) {
                        totals[at_row] += static_cast<Wide>(x) * plain[place];
                    }
                }
            }
            for (std::size_t at_row = 0; at_row < row; ++at_row) {
                if (at_row < some) {
                    kernel.out[sum + at_row][to] = reduce(totals[at_row], q);
                }
            }
        }
    }
};

inline void launch(std::size_t, const RotatedProducts& kernel, const char* name) {
    const RotatedTiles tiles{kernel};
    launch_blocks(tiles.blocks(), tiles, name);
}

}  // namespace atlasc::ckks
