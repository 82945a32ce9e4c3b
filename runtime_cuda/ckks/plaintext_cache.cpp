#include "ckks/plaintext_cache.hpp"

#include <cstring>
#include <deque>
#include <type_traits>
#include <utility>

namespace atlasc::ckks {
namespace {

/// Mixes one word into a state (the multiplication of xxHash, the shift of splitmix64).
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
    state = (state ^ word) * 0x9e3779b185ebca87ULL;
    return state ^ (state >> 29);
}

}  // namespace

std::vector<std::shared_ptr<const Plain>> PlaintextCache::encoded(
    const std::vector<const Plaintext*>& values, const std::vector<double>& scales,
    std::size_t limbs, bool extended, bool again) {
    std::vector<std::optional<Key>> keys;
    std::vector<std::shared_ptr<const Plain>> result;
    std::vector<std::size_t> missing;
    std::vector<const Plaintext*> missing_values;
    std::deque<Plaintext> slots;
    std::vector<double> missing_scales;
    for (std::size_t at = 0; at < values.size(); ++at) {
        keys.push_back(key_of(*values[at], scales[at], limbs, extended));
        result.push_back(keys[at] ? find(*keys[at]) : nullptr);
        if (result[at] == nullptr) {
            missing.push_back(at);
            const bool deferred = std::holds_alternative<Deferred>(*values[at]);
            missing_values.push_back(deferred ? &slots.emplace_back(made(*values[at]))
                                              : values[at]);
            missing_scales.push_back(scales[at]);
        }
    }
    std::vector<Plain> plains = encoder_.plains(missing_values, missing_scales, limbs, extended);
    for (std::size_t at = 0; at < missing.size(); ++at) {
        const std::size_t place = missing[at];
        result[place] = std::make_shared<const Plain>(std::move(plains[at]));
        if (!keys[place]) {
            continue;
        }
        const bool first = seen_.insert(*keys[place]).second;
        if (again || !first) {
            store(*keys[place], result[place], again);
        }
    }
    return result;
}

std::optional<PlaintextCache::Key> PlaintextCache::key_of(const Plaintext& value, double scale,
                                                          std::size_t limbs, bool extended) {
    if (const Deferred* deferred = std::get_if<Deferred>(&value)) {
        const std::array<std::uint64_t, 2> identity = {deferred->identity, 0};
        return deferred->identity == 0
                   ? std::nullopt
                   : std::optional<Key>({identity, 0, 0, scale, limbs, extended});
    }
    const auto [data, count, size] = std::visit(
        [](const auto& slots) -> std::tuple<const void*, std::size_t, std::size_t> {
            if constexpr (std::is_same_v<std::decay_t<decltype(slots)>, double>) {
                return {&slots, 1, sizeof slots};
            } else if constexpr (std::is_same_v<std::decay_t<decltype(slots)>, Deferred>) {
                return {nullptr, 0, 0};
            } else {
                return {slots.data(), slots.size(), sizeof slots[0]};
            }
        },
        value);
    // Four lanes, because one would wait for its multiplications.
    std::array<std::uint64_t, 4> lanes = {1, 2, 3, 4};
    const auto* start = static_cast<const unsigned char*>(data);
    const std::size_t bytes = count * size;
    std::array<std::uint64_t, 4> words;
    const auto mix = [&lanes, &words] {
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
            lanes[lane] = mixed(lanes[lane], words[lane]);
        }
    };
    const std::size_t whole = bytes - bytes % sizeof words;
    for (std::size_t at = 0; at < whole; at += sizeof words) {
        std::memcpy(words.data(), start + at, sizeof words);
        mix();
    }
    words = {};
    std::memcpy(words.data(), start + whole, bytes - whole);
    mix();
    const std::uint64_t first = mixed(mixed(mixed(lanes[0], lanes[1]), lanes[2]), lanes[3]);
    const std::uint64_t second = mixed(mixed(mixed(lanes[3], lanes[2]), lanes[1]), lanes[0]);
    return Key{{first, second}, count, size, scale, limbs, extended};
}

std::shared_ptr<const Plain> PlaintextCache::find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
        return nullptr;
    }
    if (found->second.use) {
        uses_.splice(uses_.begin(), uses_, *found->second.use);
    }
    return found->second.plain;
}

void PlaintextCache::store(const Key& key, const std::shared_ptr<const Plain>& plain,
                           bool again) {
    if (entries_.count(key) != 0) {  // twice among those that were encoded together
        return;
    }
    used_ += plain->words.bytes();
    Entry& entry = entries_[key] = {plain, std::nullopt};
    if (!again) {
        uses_.push_front(key);
        entry.use = uses_.begin();
    }
    while (used_ > room_ && !uses_.empty()) {
        const auto oldest = entries_.find(uses_.back());
        used_ -= oldest->second.plain->words.bytes();
        entries_.erase(oldest);
        uses_.pop_back();
    }
}

void PlaintextCache::clear() {
    entries_.clear();
    uses_.clear();
    used_ = 0;
}

}  // namespace atlasc::ckks
