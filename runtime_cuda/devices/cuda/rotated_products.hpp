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

/// A block computes all sums at the places of one tile of a limb. It makes both parts of some babies,
/// multiplies them for all sums, adds the products to those before, and goes on with the next babies.
/// Phases take turns: the plaintexts of a group of sums go to the block's memory, then the group's
/// products are computed. Of plaintexts whose values have runs, a tile has one value each, which is
/// read once. Primes are below 2^(2 bits).
template <int bits>
struct RotatedTiles {
    using Lazy = LazySum<bits>;
    using Number = Halves<bits>;
    using Count = std::uint32_t;  ///< of what a block works on; wider ones take registers
    static constexpr Count tile = 32;  ///< threads that run together read neighbours
    static constexpr Count most = 64;  ///< babies in a block's memory; so many products fit a Wide
    static constexpr Count group = 32;  ///< sums whose plaintexts are in a block's memory
    static constexpr unsigned threads = 256;
    static constexpr unsigned resident = 3;
    static constexpr Count values = most * 2 * tile;  ///< after them the plaintexts'
    static constexpr Count shared = values + group * most;
    /// Products that are added without carries: all of a turn, where numbers are small enough.
    static constexpr Count lazily = Lazy::most < most ? Lazy::most : most;
    /// Sums that a thread has at a time. Without carries they take less of its registers.
    static constexpr Count long_row = lazily == most ? 4 : 2;
    static constexpr Count short_row = 2;
    /// Plaintexts that a thread reads at once, where they are not in the block's memory: it would wait
    /// for one after another.
    static constexpr Count ahead = 8;
    static_assert(Count{1} << RotatedProducts::log_tile == tile, "a run fills a tile");
    static_assert(group % long_row == 0, "whole rows are in memory");

    RotatedProducts kernel;

    ATLASC_DEVICE Count turns() const { return parts(kernel.count, most); }
    ATLASC_DEVICE Count groups() const { return parts(kernel.sums, group); }
    ATLASC_DEVICE int phases() const { return static_cast<int>(2 * turns() * groups()); }
    std::size_t blocks() const {
        return (kernel.extended() << kernel.log_degree) / tile;
    }

    template <typename Memory>
    ATLASC_DEVICE void operator()(int phase, std::size_t block, Count thread,
                                  const Memory& memory) const {
        const Part part = part_of(static_cast<Count>(phase / 2));
        const std::size_t at = block * tile;
        const std::size_t limb = at >> kernel.log_degree;
        const Prime q = kernel.primes[prime_of(limb, kernel.limbs, kernel.size_q)];
        if (phase % 2 == 0) {
            if (part.first_sum == 0) {
                make(part, at, limb << kernel.log_degree, thread, q, memory);
            }
            if (kernel.runs) {
                stage(part, at, thread, memory);
            }
        } else if (kernel.runs) {
            multiply_rows<long_row, long_row>(
                part, at, thread, q, memory, [&](Count sum, Count baby, auto& plains) {
                    from_memory(sum, baby, memory, plains);
                });
        } else {
            multiply_rows<short_row, ahead>(
                part, at, thread, q, memory, [&](Count sum, Count baby, auto& plains) {
                    read(part, sum, baby, at + thread % tile, plains);
                });
        }
    }

private:
    /// Babies that are in a block's memory, and the group of sums that they are multiplied for.
    struct Part {
        Count first;
        Count babies;
        Count first_sum;
        Count sums;
    };

    static ATLASC_DEVICE Count parts(std::size_t count, Count each) {
        return (static_cast<Count>(count) + each - 1) / each;
    }

    ATLASC_DEVICE Part part_of(Count number) const {
        const Count first = number / groups() * most;
        const Count first_sum = number % groups() * group;
        const Count babies = static_cast<Count>(kernel.count) - first;
        const Count sums = static_cast<Count>(kernel.sums) - first_sum;
        return {first, babies < most ? babies : most, first_sum, sums < group ? sums : group};
    }

    static ATLASC_DEVICE Count in_memory(Count baby, Count half, Count place) {
        return (baby * 2 + half) * tile + place;
    }

    /// Where the plaintext of a sum and a baby of a part is; null where there is no product, or no sum.
    ATLASC_DEVICE const Word* word(const Part& part, Count sum, Count baby,
                                   std::size_t place) const {
        if (sum >= part.sums || baby >= part.babies) {
            return nullptr;
        }
        const std::size_t row = part.first_sum + sum;
        const PlainValues found = kernel.plains[row * kernel.count + part.first + baby];
        return found.word(place);
    }

    static ATLASC_DEVICE Number plain(const Word* word) {
        return word == nullptr ? Number{} : Number::of(*word);
    }

    /// Plaintexts of some babies and sums. No place depends on a plaintext, so that no read waits.
    template <std::uint32_t babies, std::uint32_t row>
    ATLASC_DEVICE void read(const Part& part, Count sum, Count baby, std::size_t place,
                            Number (&plains)[babies][row]) const {
        const Word* words[babies][row];
        for (Count next = 0; next < babies; ++next) {
            for (Count at_row = 0; at_row < row; ++at_row) {
                words[next][at_row] = word(part, sum + at_row, baby + next, place);
            }
        }
        for (Count next = 0; next < babies; ++next) {
            for (Count at_row = 0; at_row < row; ++at_row) {
                plains[next][at_row] = plain(words[next][at_row]);
            }
        }
    }

    /// The same of a tile whose plaintexts are in the block's memory.
    template <std::uint32_t babies, std::uint32_t row, typename Memory>
    static ATLASC_DEVICE void from_memory(Count sum, Count baby, const Memory& memory,
                                          Number (&plains)[babies][row]) {
        for (Count next = 0; next < babies; ++next) {
            for (Count at_row = 0; at_row < row; ++at_row) {
                plains[next][at_row] = memory.get(values + (sum + at_row) * most + baby + next);
            }
        }
    }

    template <typename Memory>
    ATLASC_DEVICE void stage(const Part& part, std::size_t at, Count thread,
                             const Memory& memory) const {
        const Count rows = (part.sums + long_row - 1) / long_row * long_row;
        for (Count index = thread; index < rows * most; index += threads) {
            const Count baby = index % most;
            if (baby < part.babies) {
                memory.set(values + index, plain(word(part, index / most, baby, at)));
            }
        }
    }

    /// A value is computed where a key and its digits have it, and goes to its place in the tile.
    template <typename Memory>
    ATLASC_DEVICE void make(const Part& part, std::size_t at, std::size_t start, Count thread,
                            const Prime& q, const Memory& memory) const {
        const Count lane = thread % tile;
        for (Count baby = thread / tile; baby < part.babies; baby += threads / tile) {
            const InnerProduct& one = kernel.babies[part.first + baby];
            const bool turned = one.galois != 1;
            const auto place = static_cast<std::uint32_t>(at - start);
            const Count from =
                turned ? permuted(place, one.galois, kernel.log_degree) / tile * tile + lane
                       : place + lane;
            const Count to = turned ? permuted(from, one.back, kernel.log_degree) % tile : lane;
            Wide b;
            Wide a;
            one.products(start + from, b, a);
            memory.set(in_memory(baby, 0, to), Number::of(reduce(b, q)));
            memory.set(in_memory(baby, 1, to), Number::of(reduce(a, q)));
        }
    }

    /// A few sums, of which a thread has one: long rows would leave most threads without any.
    template <std::uint32_t row, std::uint32_t words, typename Memory, typename Plains>
    ATLASC_DEVICE void multiply_rows(const Part& part, std::size_t at, Count thread,
                                     const Prime& q, const Memory& memory,
                                     const Plains& plains_of) const {
        if (part.sums <= threads / tile) {
            multiply<1, words>(part, at, thread, q, memory, plains_of);
        } else {
            multiply<row, words / row>(part, at, thread, q, memory, plains_of);
        }
    }

    /// Both parts of one place, of some sums: a plaintext is read for both.
    template <std::uint32_t row, std::uint32_t babies, typename Memory, typename Plains>
    ATLASC_DEVICE void multiply(const Part& part, std::size_t at, Count thread, const Prime& q,
                                const Memory& memory, const Plains& plains_of) const {
        const Count lane = thread % tile;
        const auto size = static_cast<Count>((kernel.limbs + kernel.size_p) << kernel.log_degree);
        constexpr Count step = threads / tile * row;
        for (Count sum = thread / tile * row; sum < part.sums; sum += step) {
            Wide totals[row][2] = {};
            for (Count begin = 0; begin < most; begin += lazily) {  // constants: once, or often
                const Count end = part.babies < begin + lazily ? part.babies : begin + lazily;
                Lazy sums[row][2];
                for (Count baby = begin; baby < end; baby += babies) {
                    Number plains[babies][row];
                    plains_of(sum, baby, plains);
                    for (Count next = 0; next < babies && baby + next < end; ++next) {
                        const Number b = memory.get(in_memory(baby + next, 0, lane));
                        const Number a = memory.get(in_memory(baby + next, 1, lane));
                        for (Count at_row = 0; at_row < row; ++at_row) {
                            sums[at_row][0].add(b, plains[next][at_row]);
                            sums[at_row][1].add(a, plains[next][at_row]);
                        }
                    }
                }
                for (Count at_row = 0; at_row < row; ++at_row) {
                    totals[at_row][0] += sums[at_row][0].value();
                    totals[at_row][1] += sums[at_row][1].value();
                }
            }
            for (Count at_row = 0; at_row < row; ++at_row) {
                for (Count half = 0; half < 2 && sum + at_row < part.sums; ++half) {
                    const std::size_t place = half * size + at + lane;
                    Word& out = kernel.out[part.first_sum + sum + at_row][place];
                    out = reduce(totals[at_row][half] + (part.first != 0 ? out : 0), q);
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
