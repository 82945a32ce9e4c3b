// Products of rotated ciphertexts, tile by tile: the values of babies lie in the memory of a block
// while they are multiplied by the plaintexts of all sums. A rotation takes a tile to a tile.
#pragma once

#include <cstddef>

#include "ckks/ring/rotated_products.hpp"
#include "devices/cuda/blocks.hpp"

namespace atlasc::ckks {

/// A number below 2^60 as two of 30 bits, in the halves of a word. Products of such halves leave room
/// for a few more in 64 bits, so that they are added without carries.
struct Halves {
    Word word;

    static ATLASC_DEVICE Halves of(Word x) {
        return {(x & ((Word{1} << 30) - 1)) | (x >> 30 << 32)};
    }
    ATLASC_DEVICE Word low() const { return word & 0xffffffff; }
    ATLASC_DEVICE Word high() const { return word >> 32; }
};

/// A sum of products of halves.
struct LazySum {
    static constexpr std::size_t most = 8;  ///< products: twice as many of (2^30 - 1)^2 in the middle

    Word low = 0;
    Word middle = 0;
    Word high = 0;

    ATLASC_DEVICE void add(Halves x, Halves y) {
        low += x.low() * y.low();
        middle += x.low() * y.high() + x.high() * y.low();
        high += x.high() * y.high();
    }
    ATLASC_DEVICE Wide value() const {
        return low + (static_cast<Wide>(middle) << 30) + (static_cast<Wide>(high) << 60);
    }
};

/// A block computes all sums at the places of one tile of a limb. Its phases take turns: both parts
/// of some babies, then their products, which are added to those before. Of plaintexts whose values
/// have runs, a tile has one value each, which is read once.
struct RotatedTiles {
    using Number = Word;
    static constexpr std::size_t tile = 32;  ///< threads that run together read neighbours
    static constexpr std::size_t most = 64;  ///< babies in a block's memory; so many products fit a Wide
    static constexpr unsigned threads = 256;
    static constexpr unsigned resident = 3;
    static constexpr std::size_t values = most * 2 * tile;  ///< after them the plaintexts'
    static constexpr std::size_t shared = values + RotatedProducts::most_sums * most;
    static constexpr std::size_t row = 4;  ///< sums that a thread has at a time
    static_assert(std::size_t{1} << RotatedProducts::log_tile == tile, "a run fills a tile");

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
            if (kernel.runs) {
                stage(first, own, at, thread, memory);
            }
        } else {
            multiply(first, own, at, thread, q, memory);
        }
    }

private:
    static ATLASC_DEVICE std::size_t in_memory(std::size_t baby, std::size_t part,
                                               std::size_t place) {
        return (baby * 2 + part) * tile + place;
    }

    /// Of the plaintext of a sum and a baby; 0 where there is no product.
    ATLASC_DEVICE Word plain(std::size_t sum, std::size_t baby, std::size_t place) const {
        const PlainValues& found = kernel.plains[sum * kernel.count + baby];
        return found.words == nullptr ? 0 : Halves::of(found[place]).word;
    }

    template <typename Memory>
    ATLASC_DEVICE void stage(std::size_t first, std::size_t own, std::size_t at,
                             std::size_t thread, const Memory& memory) const {
        for (std::size_t index = thread; index < kernel.sums * most; index += threads) {
            const std::size_t baby = index % most;
            if (baby < own) {
                memory.set(values + index, plain(index / most, first + baby, at));
            }
        }
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
            memory.set(in_memory(baby, 0, to), Halves::of(reduce(b, q)).word);
            memory.set(in_memory(baby, 1, to), Halves::of(reduce(a, q)).word);
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
            for (std::size_t begin = 0; begin < own; begin += LazySum::most) {
                const std::size_t end = own - begin < LazySum::most ? own : begin + LazySum::most;
                LazySum sums[row];
                for (std::size_t baby = begin; baby < end; ++baby) {
                    const Halves x{memory.get(in_memory(baby, part, lane))};
                    for (std::size_t at_row = 0; at_row < row; ++at_row) {
                        if (at_row < some) {
                            sums[at_row].add(
                                x, {kernel.runs
                                        ? memory.get(values + (sum + at_row) * most + baby)
                                        : plain(sum + at_row, first + baby, place)});
                        }
                    }
                }
                for (std::size_t at_row = 0; at_row < row; ++at_row) {
                    totals[at_row] += sums[at_row].value();
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
