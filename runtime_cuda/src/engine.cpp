#include "atlasc/engine.hpp"

#include <atomic>
#include <set>

namespace atlasc {

std::uint64_t new_identity() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

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

Ciphertext Engine::dot_plain(const Ciphertexts& xs, const std::vector<Plaintext>& values) {
    if (xs.empty() || xs.size() != values.size()) {
        throw Error("dot_plain is impossible",
                    "it takes one pair of a ciphertext and a plaintext or more");
    }
    Ciphertext total = mul_plain(xs[0], values[0]);
    for (std::size_t at = 1; at < xs.size(); ++at) {
        total = add(total, mul_plain(xs[at], values[at]));
    }
    return total;
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
        Ciphertexts operands;
        std::vector<Plaintext> values;
        for (const auto& [rotation, factor] : giant.terms) {
            operands.push_back(babies.at(rotation));
            values.push_back(factor);
        }
        const Ciphertext inner = dot_plain(operands, values);
        const Ciphertext turned =
            giant.rotation == 0 ? inner : rotate(inner, giant.rotation);
        total = total == nullptr ? turned : add(total, turned);
    }
    return total;
}

}  // namespace atlasc
