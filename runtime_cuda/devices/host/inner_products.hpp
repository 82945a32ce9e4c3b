// Products of digits and keys, a tile of a limb at a time: X^galois takes a tile to a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckks/ring/switch_kernels.hpp"

namespace atlasc::ckks {

constexpr std::size_t most_in_tile = 2048;  ///< places: what is computed of them stays in a near cache
constexpr std::size_t tiles_at_once = 8;    ///< of a thread: neighbours share lines of what they read

/// The tiles of a limb.
struct Tiling {
    std::size_t tile;
    std::size_t in_limb;

    explicit Tiling(int log_degree);
};

/// Where each value of a limb comes from at X^galois; empty where it stays.
std::vector<std::uint32_t> places_of(const InnerProduct& kernel);

/// Both parts of a product at X^galois, at the places of a tile that begins with `first`. The prime has
/// fast kernels. `from` is `places_of` the product. With `accumulate` the parts are added to.
void turned_product(const InnerProduct& kernel, std::size_t limb, std::size_t first, std::size_t tile,
                    const std::vector<std::uint32_t>& from, bool accumulate, Word* b, Word* a,
                    const Prime& q);

}  // namespace atlasc::ckks
