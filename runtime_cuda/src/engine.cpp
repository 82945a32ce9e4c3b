#include "atlasc/engine.hpp"

#include <algorithm>
#include <atomic>

namespace atlasc {

std::uint64_t new_identity() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

std::set<BabyStep> baby_steps(const std::vector<GiantStep>& steps) {
    std::set<BabyStep> found;
    for (const GiantStep& giant : steps) {
        for (const auto& [baby, factor] : giant.terms) {
            found.insert(baby);
        }
    }
    return found;
}

Ciphertext Engine::dot_plain(const Ciphertexts& xs, const std::vector<Plaintext>& values) {
    if (xs.empty() || xs.size() != values.size()) {
        throw Error("dot_plain is impossible",
                    "it needs at least one pair of a ciphertext and a plaintext");
    }
    Ciphertext total = mul_plain(xs[0], values[0]);
    for (std::size_t at = 1; at < xs.size(); ++at) {
        total = add(total, mul_plain(xs[at], values[at]));
    }
    return total;
}

Ciphertexts Engine::rotate_each(const Ciphertexts& xs, const std::vector<std::size_t>& amounts) {
    Ciphertexts rotated;
    for (std::size_t at = 0; at < xs.size(); ++at) {
        rotated.push_back(rotate(xs[at], amounts.at(at)));
    }
    return rotated;
}

Ciphertext Engine::rotate_sum(const Ciphertext& x, const std::vector<std::size_t>& amounts) {
    if (amounts.empty()) {
        throw Error("rotate_sum is impossible", "it needs at least one amount");
    }
    Ciphertext total;
    for (const Ciphertext& rotated : rotate_many(x, amounts)) {
        total = total == nullptr ? rotated : add(total, rotated);
    }
    return total;
}

std::size_t chain_amount(const std::vector<GiantStep>& steps, std::size_t at, std::size_t slots) {
    const bool first = at == 0 || steps[at - 1].result != steps[at].result;
    const std::size_t before = first ? 0 : steps[at - 1].rotation;
    return (steps[at].rotation + slots - before) % slots;
}

Ciphertexts Engine::transform(const Ciphertexts& xs, const std::vector<GiantStep>& steps,
                              bool chained) {
    std::map<std::size_t, std::vector<std::size_t>> amounts;
    for (const BabyStep& baby : baby_steps(steps)) {
        amounts[baby.operand].push_back(baby.rotation);
    }
    std::map<BabyStep, Ciphertext> babies;
    for (const auto& [operand, rotations] : amounts) {
        const Ciphertexts rotated = rotate_many(xs.at(operand), rotations);
        for (std::size_t at = 0; at < rotations.size(); ++at) {
            babies[{operand, rotations[at]}] = rotated[at];
        }
    }
    Ciphertexts totals;
    for (std::size_t left = steps.size(); left > 0; --left) {
        const GiantStep& giant = steps[left - 1];
        Ciphertexts operands;
        std::vector<Plaintext> values;
        for (const auto& [baby, factor] : giant.terms) {
            operands.push_back(babies.at(baby));
            values.push_back(factor);
        }
        const Ciphertext sum = dot_plain(operands, values);
        totals.resize(std::max(totals.size(), giant.result + 1));
        Ciphertext& total = totals[giant.result];
        if (chained) {
            const Ciphertext all = total == nullptr ? sum : add(total, sum);
            total = rotate(all, chain_amount(steps, left - 1, slots()));
        } else {
            const Ciphertext turned = rotate(sum, giant.rotation);
            total = total == nullptr ? turned : add(total, turned);
        }
    }
    return totals;
}

}  // namespace atlasc
