// Forms of the engine's ciphertexts (value.hpp): what products postpone is done here, a few at once.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_switch.hpp"
#include "ckks/value.hpp"

namespace atlasc::ckks {

std::size_t CkksEngine::limbs_of(int level) const { return ring_.chain().limbs_at(level); }

std::size_t CkksEngine::pending_limbs(int level) const {
    return limbs_of(std::min(level + 1, ring_.chain().top()));
}

double CkksEngine::scale_of(int level) const {
    return ring_.chain().scales[static_cast<std::size_t>(level)];
}

double CkksEngine::pending_scale(int level) const {
    return scale_of(level) * ring_.chain().modulus(level + 1);
}

bool CkksEngine::is_pending(const Value& x) const {
    // Where a landing left out the primes of the level above, nothing divides by them.
    const std::size_t limbs = pending_limbs(x.level);
    return limbs > limbs_of(x.level) && x.limbs == limbs && x.scale == pending_scale(x.level);
}

Ciphertext CkksEngine::summed(Combination sum, int level, double scale) const {
    Value x{level, nullptr, sum.limbs, scale};
    if (is_pending(x) && sum.is_short()) {
        x.sum = std::make_shared<Combination>(std::move(sum));
    } else {
        x.polys = std::make_shared<Polys>(computed(ring_, sum));
    }
    return std::make_shared<Held>(std::move(x));
}

CkksEngine::Polynomials CkksEngine::words_of(const Value& x) const {
    return x.polys != nullptr ? x.polys : std::make_shared<Polys>(computed(ring_, *x.sum));
}

Combination CkksEngine::term(const Value& x, double number, std::size_t limbs) const {
    return {limbs, {}, 1, {{words_of(x), residues(ring_, number, limbs)}}};
}

Combination CkksEngine::times(const Value& x, double number, std::size_t limbs) const {
    return x.polys == nullptr && number == 1.0 ? *x.sum : term(x, number, limbs);
}

Value CkksEngine::canonical(const Ciphertext& handle) const {
    Value x = of(handle);
    const std::size_t limbs = limbs_of(x.level);
    if (x.limbs == limbs) {
        return x;
    }
    const double scale = scale_of(x.level);
    if (!close(x.scale, scale)) {
        settled({handle});
        return of(handle);
    }
    x.limbs = limbs;
    x.scale = scale;
    held_by(handle).replace(x);
    return x;
}

void CkksEngine::settle(const Ciphertexts& handles) {
    Ciphertexts pending;
    for (const Ciphertext& handle : handles) {
        if (is_pending(of(handle))) {
            pending.push_back(handle);
        }
    }
    settled(pending);
}

void CkksEngine::settled(const Ciphertexts& handles) const {
    using Waiting = std::pair<Ciphertext, Value>;
    std::map<std::pair<int, std::size_t>, std::vector<Waiting>> alike;  // by level and parts
    std::set<const CiphertextData*> seen;
    for (const Ciphertext& handle : handles) {
        const Value x = of(handle);
        const bool waits = x.limbs != limbs_of(x.level) && !close(x.scale, scale_of(x.level));
        if (waits && seen.insert(handle.get()).second) {
            const std::size_t parts = x.polys != nullptr ? x.polys->parts : x.sum->parts();
            alike[{x.level, parts}].emplace_back(handle, x);
        }
    }
    for (const auto& [kind, all] : alike) {
        const auto [level, parts] = kind;
        const std::size_t most = std::max<std::size_t>(together() / parts, 1);
        for (std::size_t first = 0; first < all.size(); first += most) {
            std::vector<const Polys*> operands;
            std::vector<Combination> sums;
            for (std::size_t at = first; at < std::min(first + most, all.size()); ++at) {
                const Value& x = all[at].second;
                operands.push_back(is_pending(x) ? x.polys.get() : nullptr);
                if (!is_pending(x)) {
                    sums.push_back(term(x, pending_scale(level) / x.scale, limbs_of(level + 1)));
                } else if (x.polys == nullptr) {
                    sums.push_back(*x.sum);
                }
            }
            const std::vector<Polys> made = computed(ring_, sums);
            auto next = made.begin();
            for (const Polys*& operand : operands) {
                operand = operand != nullptr ? operand : &*next++;
            }
            const std::size_t limbs = limbs_of(level + 1);
            std::vector<Polys> found =
                parts == 3 ? relinearised(ring_.switching(limbs), operands,
                                          *role_.keys->relinearisation, limbs, level + 1)
                           : rescaled(ring_, operands, level + 1);
            for (std::size_t at = 0; at < found.size(); ++at) {
                held_by(all[first + at].first)
                    .replace({level, std::make_shared<Polys>(std::move(found[at])),
                              limbs_of(level), scale_of(level)});
            }
        }
    }
}

Ciphertext CkksEngine::lowered(const Ciphertext& handle, int level) const {
    const Value known = of(handle);
    if (known.level == level) {
        return handle;
    }
    const Value x = is_pending(known) ? canonical(handle) : known;
    return held(x.polys, level, x.limbs, x.scale);
}

}  // namespace atlasc::ckks
