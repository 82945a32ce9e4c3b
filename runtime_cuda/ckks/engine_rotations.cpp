// Primitives of the engine that rotate: they switch keys.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ckks/ckks_engine.hpp"
#include "ckks/keys/rotated_sums.hpp"
#include "ckks/value.hpp"

namespace atlasc::ckks {
namespace {

/// Part of a polynomial that an encoded plaintext takes.
double size_of(const Plaintext& value) {
    constexpr std::size_t short_repeats = 8;
    const Deferred* deferred = std::get_if<Deferred>(&value);
    const bool repeats = deferred != nullptr && deferred->repeats >= short_repeats;
    return repeats ? 1.0 / static_cast<double>(deferred->repeats) : 1.0;
}

/// Most bytes that so many sums of a transform at once take, with their plaintexts, the results, and
/// the digits of sums.
double bytes_of_sums(const Ring& ring, const std::vector<GiantStep>& steps, std::size_t most,
                     std::size_t results, std::size_t limbs) {
    double greatest = 0;
    double polynomials = 0;
    for (std::size_t at = 0; at < steps.size(); ++at) {
        polynomials = at % most == 0 ? 0 : polynomials;
        polynomials += 2;
        for (const auto& [baby, value] : steps[at].terms) {
            polynomials += size_of(value);
        }
        greatest = std::max(greatest, polynomials);
    }
    greatest += static_cast<double>(2 * results + together() * (ring.digits(limbs) + 2));
    return greatest * static_cast<double>((limbs + ring.size_p()) * ring.degree() * sizeof(Word));
}

/// Sums of a transform that are in memory at once; rotated operands are made for all of them. Where
/// the device's own number does not fit, they are fewer.
std::size_t sums_at_once(const Ring& ring, const std::vector<GiantStep>& steps,
                         std::size_t results, std::size_t limbs) {
    constexpr std::size_t least = 32;
    std::size_t sums = most_sums();
    const auto left = [&] { return static_cast<double>(ring.memory().left()); };
    while (sums > least && steps.size() > least &&
           bytes_of_sums(ring, steps, sums, results, limbs) > left()) {
        sums /= 2;
    }
    return sums;
}

/// A ciphertext as it is, times P.
Switched unturned(const Ring& ring, const Polys& x, std::size_t limbs) {
    return {{}, nullptr, 1, times_special(ring, x.part(0), x.part(1), limbs)};
}

}  // namespace

const SwitchKey& CkksEngine::key_for(std::size_t amount, int level) const {
    const auto found = role_.keys->rotations.find(amount);
    const SwitchKey* key = found == role_.keys->rotations.end() ? nullptr : &found->second;
    if (!reaches(ring_, key, limbs_of(level))) {
        refuse("rotate",
               "there is no key for amount " + std::to_string(amount) + " at level " +
                   std::to_string(level),
               "make keys with this program's client");
    }
    return *key;
}

Ciphertext CkksEngine::conjugate(const Ciphertext& handle) {
    const Value x = canonical(handle);
    const SwitchKey* key = role_.keys->conjugation ? &*role_.keys->conjugation : nullptr;
    if (!reaches(ring_, key, x.limbs)) {
        refuse("conjugate", "there is no key for level " + std::to_string(x.level),
               "make keys with this program's client");
    }
    const Ring& ring = ring_.switching(x.limbs);
    const Digits digits = decomposed(ring, {x.polys->part(1)}, x.limbs, true);
    std::vector<Polys> found =
        switched(ring,
                 {{digits.of(0), key, galois_of_conjugation(ring),
                   times_special(ring, x.polys->part(0), nullptr, x.limbs)}},
                 x.limbs);
    return held(std::make_shared<Polys>(std::move(found[0])), x.level, x.limbs, x.scale);
}

Ciphertext CkksEngine::rotate(const Ciphertext& x, std::size_t amount) {
    return rotate_each({x}, {amount})[0];
}

Ciphertexts CkksEngine::rotate_each(const Ciphertexts& xs,
                                    const std::vector<std::size_t>& amounts) {
    settled(xs);
    Ciphertexts result = xs;
    std::map<int, std::vector<std::size_t>> alike;  // places of those that turn, by level
    for (std::size_t at = 0; at < xs.size(); ++at) {
        if (amounts.at(at) != 0) {
            alike[of(xs[at]).level].push_back(at);
        }
    }
    const std::size_t most = std::max<std::size_t>(together() / 2, 1);
    for (const auto& [level, places] : alike) {
        const std::size_t limbs = limbs_of(level);
        const Ring& ring = ring_.switching(limbs);
        for (std::size_t first = 0; first < places.size(); first += most) {
            const std::size_t end = std::min(first + most, places.size());
            std::vector<Value> operands;
            std::vector<const Word*> seconds;
            for (std::size_t at = first; at < end; ++at) {
                operands.push_back(canonical(xs[places[at]]));
                seconds.push_back(operands.back().polys->part(1));
            }
            const Digits digits = decomposed(ring, seconds, limbs, true);
            std::vector<Switched> each;
            for (std::size_t at = first; at < end; ++at) {
                const std::size_t amount = amounts[places[at]];
                const Word* rest = operands[at - first].polys->part(0);
                each.push_back({digits.of(at - first), &key_for(amount, level),
                                galois_of(ring, amount),
                                times_special(ring, rest, nullptr, limbs)});
            }
            std::vector<Polys> polys = switched(ring, each, limbs);
            for (std::size_t at = first; at < end; ++at) {
                result[places[at]] =
                    held(std::make_shared<Polys>(std::move(polys[at - first])), level, limbs,
                         scale_of(level));
            }
        }
    }
    return result;
}

Ciphertexts CkksEngine::rotate_many(const Ciphertext& handle,
                                       const std::vector<std::size_t>& amounts) {
    const bool turns = std::any_of(amounts.begin(), amounts.end(),
                                   [](std::size_t amount) { return amount != 0; });
    if (!turns) {
        return Ciphertexts(amounts.size(), handle);
    }
    const Value x = canonical(handle);
    Ciphertexts result(amounts.size(), handle);
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < amounts.size(); ++at) {
        if (amounts[at] != 0) {
            places.push_back(at);
        }
    }
    const bool once = places.size() == 1;
    const Ring& ring = ring_.switching(x.limbs);
    const Digits digits = decomposed(ring, {x.polys->part(1)}, x.limbs, once);
    const std::size_t most = std::max<std::size_t>(together() / 2, 1);
    for (std::size_t first = 0; first < places.size(); first += most) {
        const std::size_t end = std::min(first + most, places.size());
        std::vector<Switched> each;
        for (std::size_t at = first; at < end; ++at) {
            const std::size_t amount = amounts[places[at]];
            each.push_back({digits.of(0), &key_for(amount, x.level), galois_of(ring, amount),
                            times_special(ring, x.polys->part(0), nullptr, x.limbs)});
        }
        std::vector<Polys> polys = switched(ring, each, x.limbs);
        for (std::size_t at = first; at < end; ++at) {
            result[places[at]] = held(std::make_shared<Polys>(std::move(polys[at - first])),
                                      x.level, x.limbs, x.scale);
        }
    }
    return result;
}

Ciphertext CkksEngine::rotate_sum(const Ciphertext& handle,
                                  const std::vector<std::size_t>& amounts) {
    if (amounts.empty()) {
        refuse("rotate_sum", "it needs at least one amount");
    }
    const Value x = canonical(handle);
    const Ring& ring = ring_.switching(x.limbs);
    const Digits digits = decomposed(ring, {x.polys->part(1)}, x.limbs, false);
    std::vector<Switched> terms;
    for (const std::size_t amount : amounts) {
        if (amount == 0) {
            terms.push_back(unturned(ring, *x.polys, x.limbs));
        } else {
            terms.push_back({digits.of(0), &key_for(amount, x.level), galois_of(ring, amount),
                             times_special(ring, x.polys->part(0), nullptr, x.limbs)});
        }
    }
    std::vector<Extended> sum;
    add_switched(ring, terms, sum.emplace_back(ring, x.limbs), false);
    return held(std::make_shared<Polys>(std::move(divided(ring, sum, 0)[0])), x.level, x.limbs,
                x.scale);
}

Ciphertexts CkksEngine::transform(const Ciphertexts& handles, const std::vector<GiantStep>& steps,
                                  bool chained) {
    // Double hoisting: rotated operands, their products and the sums keep the factor P, and the one
    // division at the end is by the level's primes too. A giant step divides just the part that it
    // decomposes. The key of a giant step reaches the operands' level.
    const int level = least_level({&handles}, "a linear transform");
    const std::size_t limbs = limbs_of(level);
    const Ring& ring = ring_.switching(limbs);
    const double scale = pending_scale(level - 1) / scale_of(level);
    std::vector<Value> operands;
    for (const Ciphertext& handle : handles) {
        operands.push_back(canonical(lowered(handle, level)));
    }
    const std::set<BabyStep> order = baby_steps(steps);
    std::map<std::size_t, Digits> digits;
    std::vector<Switched> babies;
    for (const auto& [operand, rotation] : order) {
        const Polys& x = *operands.at(operand).polys;
        if (rotation == 0) {
            babies.push_back(unturned(ring, x, limbs));
            continue;
        }
        if (digits.count(operand) == 0) {
            digits.emplace(operand, decomposed(ring, {x.part(1)}, limbs, false));
        }
        babies.push_back({digits.at(operand).of(0), &key_for(rotation, level),
                          galois_of(ring, rotation),
                          times_special(ring, x.part(0), nullptr, limbs)});
    }
    std::size_t count = 0;
    for (const GiantStep& step : steps) {
        count = std::max(count, step.result + 1);
    }
    std::vector<std::optional<Extended>> totals(count);
    const std::size_t most = sums_at_once(ring, steps, count, limbs);
    // A chain begins with the last steps.
    for (std::size_t end = steps.size(); end > 0;) {
        const std::size_t first = (end - 1) / most * most;
        std::vector<const Plaintext*> values;
        for (std::size_t at = first; at < end; ++at) {
            for (const auto& [baby, value] : steps[at].terms) {
                values.push_back(&value);
            }
        }
        std::vector<std::shared_ptr<const Plain>> kept;
        const auto plains = encoded(values, std::vector<double>(values.size(), scale), limbs,
                                    ring.size_p(), true, kept);
        std::vector<std::vector<PlainValues>> rows;
        std::size_t next = 0;
        for (std::size_t at = first; at < end; ++at) {
            rows.emplace_back();
            for (const BabyStep& baby : order) {
                const bool used = steps[at].terms.count(baby) != 0;
                rows.back().push_back(used ? plains[next++] : PlainValues{nullptr, 0});
            }
        }
        std::vector<Extended> sums = rotated_sums(ring, babies, rows, limbs);
        if (chained) {
            add_chained(std::move(sums), steps, first, level, totals);
        } else {
            add_turned(std::move(sums), &steps[first], level, totals);
        }
        end = first;
    }
    Ciphertexts results;
    for (std::size_t first = 0; first < count; first = results.size()) {
        std::vector<Extended> some;
        for (std::size_t at = first; at < count && 2 * some.size() < together(); ++at) {
            some.push_back(std::move(totals[at].value()));
            totals[at].reset();
        }
        for (Polys& polys : divided(ring, some, level)) {
            results.push_back(held(std::make_shared<Polys>(std::move(polys)), level - 1,
                                   limbs_of(level - 1), scale_of(level - 1)));
        }
    }
    return results;
}

void CkksEngine::add_turned(std::vector<Extended> sums, const GiantStep* steps, int level,
                            std::vector<std::optional<Extended>>& totals) const {
    const Ring& ring = ring_.switching(limbs_of(level));
    for (std::size_t first = 0; first < sums.size(); first += together()) {
        const std::size_t end = std::min(first + together(), sums.size());
        std::vector<const Extended*> turned;
        for (std::size_t at = first; at < end; ++at) {
            if (steps[at].rotation != 0) {
                turned.push_back(&sums[at]);
            }
        }
        const Digits digits = decomposed(ring, turned);
        std::map<std::size_t, std::vector<Switched>> terms;  // by result
        std::size_t next = 0;
        for (std::size_t at = first; at < end; ++at) {
            const GiantStep& step = steps[at];
            if (step.rotation != 0) {
                terms[step.result].push_back({digits.of(next++), &key_for(step.rotation, level),
                                              galois_of(ring, step.rotation),
                                              first_part(ring, sums[at])});
            } else if (totals[step.result]) {
                terms[step.result].push_back({{}, nullptr, 1, both_parts(ring, sums[at])});
            } else {
                totals[step.result] = std::move(sums[at]);
            }
        }
        for (const auto& [result, own] : terms) {
            const bool none = !totals[result];
            if (none) {
                totals[result].emplace(ring, limbs_of(level));
            }
            add_switched(ring, own, *totals[result], !none);
        }
    }
}

void CkksEngine::add_chained(std::vector<Extended> sums, const std::vector<GiantStep>& steps,
                             std::size_t first, int level,
                             std::vector<std::optional<Extended>>& totals) const {
    for (std::size_t left = sums.size(); left > 0; --left) {
        const std::size_t at = first + left - 1;
        std::optional<Extended>& total = totals[steps[at].result];
        if (total) {
            const std::size_t amount = chain_amount(steps, at + 1, slots());
            total = turned(*total, amount, level, &sums[left - 1]);
        } else {
            total = std::move(sums[left - 1]);
        }
        const bool begins = at == 0 || steps[at - 1].result != steps[at].result;
        if (begins && steps[at].rotation != 0) {
            total = turned(*total, steps[at].rotation, level, nullptr);
        }
    }
}

Extended CkksEngine::turned(const Extended& x, std::size_t amount, int level,
                            const Extended* more) const {
    const Ring& ring = ring_.switching(x.limbs);
    const Digits digits = decomposed(ring, {&x});
    std::vector<Switched> terms{{digits.of(0), &key_for(amount, level), galois_of(ring, amount),
                                 first_part(ring, x)}};
    if (more != nullptr) {
        terms.push_back({{}, nullptr, 1, both_parts(ring, *more)});
    }
    Extended result(ring, limbs_of(level));
    add_switched(ring, terms, result, false);
    return result;
}

}  // namespace atlasc::ckks
