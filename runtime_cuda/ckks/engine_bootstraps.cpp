// Bootstraps of the engine: the raising of a modulus, and the level that they end at.
#include <algorithm>
#include <utility>

#include "ckks/ckks_engine.hpp"
#include "ckks/keys/raise.hpp"
#include "ckks/value.hpp"

namespace atlasc::ckks {

Ciphertext CkksEngine::raise_modulus(const Ciphertext& x, int level, std::size_t copies) {
    if (!role_.keys->to_sparse || of(x).level != 0 || (copies != 1 && copies != raised_copies)) {
        refuse("raise_modulus", "it takes keys that bootstrap, a ciphertext at level 0, and 1 or " +
                                    std::to_string(raised_copies) + " copies");
    }
    const std::size_t limbs = limbs_of(level);
    auto polys = std::make_shared<Polys>(
        (copies == 1 ? raised : raised_mean)(ring_, *canonical(x).polys, *role_.keys, limbs));
    return held(std::move(polys), level, limbs, scale_of(level));
}

Ciphertexts CkksEngine::bootstrap_many(const Ciphertexts& xs, std::size_t period, int level) {
    const int highest = ring_.chain().refreshed;
    if (bootstraps_.empty() || !role_.keys->to_sparse || highest < 0) {
        refuse("bootstrap", "these parameters do not allow a bootstrap");
    }
    if (level < 1 || level > highest) {
        refuse("bootstrap", "it ends at a level from 1 to " + std::to_string(highest) +
                                ", not at " + std::to_string(level));
    }
    if (level == highest) {
        return refreshed(*this, xs, period);
    }
    // Levels up to this one have the same primes and scales in both rings, and the last one of the
    // other engine is this one.
    Ciphertexts operands;
    for (const Ciphertext& x : xs) {
        const Value own = canonical(lowered(x, std::min(of(x).level, level)));
        operands.push_back(held(own.polys, own.level, own.limbs, own.scale));
    }
    CkksEngine& engine = landing(level);
    Ciphertexts results;
    for (const Ciphertext& x : refreshed(engine, operands, period)) {
        const Value own = engine.canonical(x);
        results.push_back(held(own.polys, level, own.limbs, own.scale));
    }
    return results;
}

Ciphertexts CkksEngine::refreshed(CkksEngine& engine, const Ciphertexts& xs, std::size_t period) {
    settle(xs);
    const auto bootstrapped = [&](const Ciphertexts& some) {
        Ciphertexts found = bootstraps_.refreshed(engine, some, period);
        engine.settle(found);  // no other engine could, and a graph has no sums that wait
        return found;
    };
    Ciphertexts results;
    for (std::size_t first = 0; first < xs.size(); first += 2) {
        const std::size_t end = std::min(first + 2, xs.size());
        const Ciphertexts some(xs.begin() + static_cast<std::ptrdiff_t>(first),
                               xs.begin() + static_cast<std::ptrdiff_t>(end));
        for (Ciphertext& x : repeated_->run(engine.ring_, period, some, bootstrapped)) {
            results.push_back(std::move(x));
        }
    }
    return results;
}

CkksEngine& CkksEngine::landing(int level) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = landings_.find(level);
        if (found != landings_.end()) {
            return *found->second;
        }
    }
    // Not under the lock: what it takes may press for memory. Of two that are made one stays.
    auto made = std::make_unique<CkksEngine>(*this, level);
    const std::lock_guard<std::mutex> lock(mutex_);
    return *landings_.emplace(level, std::move(made)).first->second;
}

}  // namespace atlasc::ckks
