#include "ckks/plaintexts/plaintext_cache.hpp"

#include <utility>

namespace atlasc::ckks {

std::vector<std::shared_ptr<const Plain>> PlaintextCache::encoded(
    const std::vector<const Plaintext*>& values, const std::vector<double>& scales,
    std::size_t limbs, std::size_t special, bool again) {
    std::vector<std::optional<Key>> keys;
    std::vector<std::shared_ptr<const Plain>> result;
    std::vector<std::size_t> missing;
    std::vector<const Plaintext*> missing_values;
    std::vector<double> missing_scales;
    for (std::size_t at = 0; at < values.size(); ++at) {
        keys.push_back(key_of(*values[at], scales[at], limbs, special));
        result.push_back(keys[at] ? find(*keys[at]) : nullptr);
        if (result[at] == nullptr) {
            missing.push_back(at);
            missing_values.push_back(values[at]);
            missing_scales.push_back(scales[at]);
        }
    }
    std::vector<Plain> plains = encoder_.plains(missing_values, missing_scales, limbs, special);
    // Not while they are encoded, which may press for memory, and clear the cache.
    const std::lock_guard<std::mutex> lock(mutex_);
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
                                                          std::size_t limbs, std::size_t special) {
    const auto* deferred = std::get_if<Deferred>(&value);
    return deferred == nullptr || deferred->identity == 0
               ? std::nullopt
               : std::optional<Key>({deferred->identity, scale, limbs, special});
}

std::shared_ptr<const Plain> PlaintextCache::find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
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
    used_ += plain->bytes();
    Entry& entry = entries_[key] = {plain, std::nullopt};
    if (!again) {
        uses_.push_front(key);
        entry.use = uses_.begin();
    }
    while (used_ > room_ && !uses_.empty()) {
        const auto oldest = entries_.find(uses_.back());
        used_ -= oldest->second.plain->bytes();
        entries_.erase(oldest);
        uses_.pop_back();
    }
}

void PlaintextCache::clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.clear();
    uses_.clear();
    used_ = 0;
}

}  // namespace atlasc::ckks
