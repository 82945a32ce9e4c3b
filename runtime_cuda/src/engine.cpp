#include "atlasc/engine.hpp"

#include <set>

namespace atlasc {

std::vector<std::size_t> baby_rotations(const std::vector<GiantStep>& steps) {
    std::set<std::size_t> amounts;
    for (const GiantStep& giant : steps) {
        for (const auto& [rotation, factor] : giant.terms) {
            amounts.insert(rotation);
        }
    }
    amounts.erase(0);
    return {amounts.begin(), amounts.end()};
}

Ciphertext Engine::transform(const Ciphertext& x, const std::vector<GiantStep>& steps) {
    const std::vector<std::size_t> amounts = baby_rotations(steps);
    const Ciphertexts rotated = rotate_many(x, amounts);
    std::map<std::size_t, Ciphertext> babies = {{0, x}};
    for (std::size_t at = 0; at < amounts.size(); ++at) {
        babies[amounts[at]] = rotated[at];
    }
    Ciphertext total;
    for (const GiantStep& giant : steps) {
        Ciphertext inner;
        for (const auto& [rotation, factor] : giant.terms) {
            inner = mul_plain_then_add(babies.at(rotation), factor, inner);
        }
        const Ciphertext turned =
            giant.rotation == 0 ? inner : rotate(inner, giant.rotation);
        total = total == nullptr ? turned : add(total, turned);
    }
    return total;
}

}  // namespace atlasc
