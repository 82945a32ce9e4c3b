// Products of rotated ciphertexts, tile by tile: the values of babies lie in the memory of a block
// while they are multiplied by the plaintexts of all sums. A rotation takes a tile to a tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ckks/ring/rotated_products.hpp"
#include "devices/cuda/blocks.hpp"

namespace atlasc::ckks {

/// A number below 2^(2 bits) as two of so many bits. They are 32-bit integers in memory too, so that
/// the compiler multiplies them as such.
template <int bits>
struct alignas(8) Halves {
    std::uint32_t low = 0;
    std::uint32_t high = 0;

    static ATLASC_DEVICE Halves of(Word x) {
        return {static_cast<std::uint32_t>(x & ((Word{1} << bits) - 1)),
                static_cast<std::uint32_t>(x >> bits)};
    }
};

/// A sum of products of halves: three products of 32 bits each instead of four (Karatsuba and Ofman
/// 1962), which are added without carries. `cross` may pass 2^64: the middle part does not, and is
/// found modulo 2^64.
template <int bits>
struct LazySum {
    static constexpr std::size_t most = std::size_t{1} << (63 - 2 * bits);  ///< products
    static constexpr Word greatest = (Word{1} << bits) - 1;
    static_assert(greatest * greatest <= ~Word{0} / (2 * most), "a middle part fits 64 bits");
    static_assert(bits < 32, "a sum of two halves fits 32 bits");

    Word low = 0;
    Word cross = 0;
    Word high = 0;

    ATLASC_DEVICE void add(Halves<bits> x, Halves<bits> y) {
        low += product(x.low, y.low);
        cross += product(x.low + x.high, y.low + y.high);
        high += product(x.high, y.high);
    }
    ATLASC_DEVICE Wide value() const {
        const Word middle = cross - low - high;
        return low + (static_cast<Wide>(middle) << bits) + (static_cast<Wide>(high) << 2 * bits);
    }

private:
    static ATLASC_DEVICE Word product(std::uint32_t x, std::uint32_t y) { return Word{x} * y; }
};

/// A block computes all sums at the places of one tile of a limb. Its phases take turns: both parts
/// of some babies, then their products, which are added to those before. Of plaintexts whose values
/// have runs, a tile has one value each, which is read once. Primes are below 2^(2 bits).
template <int bits>
struct RotatedTiles {
    using Lazy = LazySum<bits>;
    using Number = Halves<bits>;
    static constexpr std::size_t tile = 32;  ///< threads that run together read neighbours
    static constexpr std::size_t most = 64;  ///< babies in a block's memory; so many products fit a Wide
    static constexpr unsigned threads = 256;
    static constexpr unsigned resident = 3;
    static constexpr std::size_t values = most * 2 * tile;  ///< after them the plaintexts'
    static constexpr std::size_t shared = values + RotatedProducts::most_sums * most;
    /// Products that are added without carries: all of a turn, where numbers are small enough.
    static constexpr std::size_t lazily = Lazy::most < most ? Lazy::most : most;
    /// Sums that a thread has at a time. Without carries they take less of its registers.
    static constexpr std::size_t long_row = lazily == most ? 4 : 2;
    static constexpr std::size_t short_row = 2;
    static_assert(std::size_t{1} << RotatedProducts::log_tile == tile, "a run fills a tile");
    static_assert(RotatedProducts::most_sums % long_row == 0, "whole rows are in memory");

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
        } else if (kernel.runs) {
            multiply<long_row>(first, own, at, thread, q, memory, [&](auto sum, auto baby) {
                return memory.get(values + sum * most + baby);
            });
        } else {
            multiply<short_row>(first, own, at, thread, q, memory, [&](auto sum, auto baby) {
                return plain(sum, first + baby, at + thread % tile);
            });
        }
    }

private:
    static ATLASC_DEVICE std::size_t in_memory(std::size_t baby, std::size_t part,
                                               std::size_t place) {
        return (baby * 2 + part) * tile + place;
    }

    /// Of the plaintext of a sum and a baby; 0 where there is no product, or no sum.
    ATLASC_DEVICE Number plain(std::size_t sum, std::size_t baby, std::size_t place) const {
        if (sum >= kernel.sums) {
            return {};
        }
        const PlainValues& found = kernel.plains[sum * kernel.count + baby];
        return found.words == nullptr ? Number{} : Number::of(found[place]);
    }

    template <typename Memory>
    ATLASC_DEVICE void stage(std::size_t first, std::size_t own, std::size_t at,
                             std::size_t thread, const Memory& memory) const {
        const std::size_t rows = (kernel.sums + long_row - 1) / long_row * long_row;
        for (std::size_t index = thread; index < rows * most; index += threads) {
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
            memory.set(in_memory(baby, 0, to), Number::of(reduce(b, q)));
            memory.set(in_memory(baby, 1, to), Number::of(reduce(a, q)));
        }
    }

    /// Both parts of one place, of some sums: a plaintext is read for both.
    template <std::size_t row, typename Memory, typename Plain>
    ATLASC_DEVICE void multiply(std::size_t first, std::size_t own, std::size_t at,
                                std::size_t thread, const Prime& q, const Memory& memory,
                                const Plain& plain_of) const {
        const std::size_t lane = thread % tile;
        const std::size_t size = (kernel.limbs + kernel.size_p) << kernel.log_degree;
        constexpr std::size_t step = threads / tile * row;
        for (std::size_t sum = thread / tile * row; sum < kernel.sums; sum += step) {
            Wide totals[row][2] = {};
            for (std::size_t begin = 0; begin < most; begin += lazily) {  // constants: once, or often
                const std::size_t end = own < begin + lazily ? own : begin + lazily;
                Lazy sums[row][2];
                for (std::size_t baby = begin; baby < end; ++baby) {
                    const Number b = memory.get(in_memory(baby, 0, lane));
                    const Number a = memory.get(in_memory(baby, 1, lane));
                    for (std::size_t at_row = 0; at_row < row; ++at_row) {
                        const Number y = plain_of(sum + at_row, baby);
                        sums[at_row][0].add(b, y);
                        sums[at_row][1].add(a, y);
                    }
                }
                for (std::size_t at_row = 0; at_row < row; ++at_row) {
                    totals[at_row][0] += sums[at_row][0].value();
                    totals[at_row][1] += sums[at_row][1].value();
                }
            }
            for (std::size_t at_row = 0; at_row < row; ++at_row) {
                for (std::size_t part = 0; part < 2 && sum + at_row < kernel.sums; ++part) {
                    Word& out = kernel.out[sum + at_row][part * size + at + lane];
                    out = reduce(totals[at_row][part] + (first != 0 ? out : 0), q);
                }
            }
        }
    }
};

template <int bits>
void launch_tiles(const RotatedProducts& kernel, const char* name) {
    const RotatedTiles<bits> tiles{kernel};
    launch_blocks(tiles.blocks(), tiles, name);
}

inline void launch(std::size_t, const RotatedProducts& kernel, const char* name) {
    kernel.prime_bits <= 50 ? launch_tiles<25>(kernel, name) : launch_tiles<30>(kernel, name);
}

}  // namespace atlasc::ckks
