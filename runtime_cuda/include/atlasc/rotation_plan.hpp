// How a program turns its ciphertexts: by a key of that amount, by the bootstrap key, or composed.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "atlasc/engine.hpp"

namespace atlasc {

/// Amounts are to the left, 0 < amount < slots. An own key comes first, then the bootstrap key,
/// then the composition.
struct RotationPlan {
    /// Amount -> highest level that its key serves.
    std::map<std::size_t, int> keys;
    /// Amounts that are turned with the bootstrap key, at any level.
    std::set<std::size_t> bootstrap;
    /// Amount -> (first, last): turned by first, as the plan says of that, then once by last.
    std::map<std::size_t, std::pair<std::size_t, std::size_t>> composed;

    /// Whether an own key serves: only such rotations share a decomposition.
    bool hoists(std::size_t amount, int level) const;

    /// The key switches of a rotation at a level, in order.
    std::vector<std::size_t> path(std::size_t amount, int level) const;

    /// One rotation to the left for each amount, any integer. Key switches that several rotations
    /// start with are made once, and those by own keys of one ciphertext are hoisted.
    Ciphertexts rotate_many(Engine& engine, const Ciphertext& x,
                            const std::vector<long>& amounts) const;
};

}  // namespace atlasc
