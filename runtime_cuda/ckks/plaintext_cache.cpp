#include "ckks/plaintext_cache.hpp"

#include <cstring>

namespace atlasc::ckks {
namespace {

/// Mixes one word into a state (the multiplication of xxHash, the shift of splitmix64).
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
    state = (state ^ word) * 0x9e3779b185ebca87ULL;
    return state ^ (state >> 29);
}

}  // namespace

PlaintextCache::Key PlaintextCache::key_of(const void* data, std::size_t count, std::size_t size,
                                           double scale, std::size_t limbs,
                                           bool extended) {
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
    return {{first, second}, count, size, scale, limbs, extended};
}

std::shared_ptr<const Plain> PlaintextCache::find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
        return nullptr;
    }
    uses_.splice(uses_.begin(), uses_, found->second.use);
    return found->second.plain;
}

void PlaintextCache::store(const Key& key, const std::shared_ptr<const Plain>& plain) {
    used_ += plain->words.bytes();
    uses_.push_front(key);
    entries_[key] = {plain, uses_.begin()};
    while (used_ > room_) {
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
