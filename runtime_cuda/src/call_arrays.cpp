// The arrays of one call of a function, and what plaintexts derive from a mask among them.
#include <algorithm>
#include <cmath>

#include "atlasc/record.hpp"

namespace atlasc {
namespace {

/// Tokens of each input of a mask [batch, tokens].
std::size_t tokens_of(const Tensor& mask) {
    return std::max<std::size_t>(mask.shape.empty() ? 1 : mask.shape.back(), 1);
}

/// Tokens up to each one that a mask keeps, itself included.
Vector kept_until(const Tensor& mask) {
    const std::size_t tokens = tokens_of(mask);
    Vector found;
    for (std::size_t at = 0; at < mask.values.size(); ++at) {
        const double before = at % tokens == 0 ? 0.0 : found.back();
        found.push_back(before + (mask.values[at] != 0.0 ? 1.0 : 0.0));
    }
    return found;
}

/// Keys that the query at each token sees.
Vector visible_near(const Tensor& mask, std::size_t window, bool causal) {
    const std::size_t keys = tokens_of(mask);
    Vector found;
    for (std::size_t at = 0; at < mask.values.size(); ++at) {
        const std::size_t query = at % keys;
        const std::size_t reach = mask.values[at] != 0.0 ? std::min(window, keys) : keys;
        const std::size_t first = query + 1 > reach ? query + 1 - reach : 0;
        const std::size_t end = causal ? query + 1 : std::min(query + reach, keys);
        double visible = 0.0;
        for (std::size_t key = at - query + first; key < at - query + end; ++key) {
            visible += mask.values[key] != 0.0 ? 1.0 : 0.0;
        }
        found.push_back(visible);
    }
    return found;
}

Vector log_hidden(const Tensor& mask, Vector visible) {
    for (double& keys : visible) {
        keys = std::log(static_cast<double>(tokens_of(mask)) / std::max(keys, 1.0));
    }
    return visible;
}

Vector positions(const Tensor& mask) {
    Vector found = kept_until(mask);
    for (double& kept : found) {
        kept = std::max(kept - 1.0, 0.0);
    }
    return found;
}

Vector shares(const Tensor& mask) {
    const std::size_t tokens = tokens_of(mask);
    const Vector& kept = mask.values;
    Vector found;
    for (std::size_t first = 0; first < kept.size(); first += tokens) {
        const std::size_t last = std::min(first + tokens, kept.size());
        double count = 0.0;
        for (std::size_t at = first; at < last; ++at) {
            count += kept[at] != 0.0 ? 1.0 : 0.0;
        }
        for (std::size_t at = first; at < last; ++at) {
            found.push_back(kept[at] != 0.0 ? 1.0 / count : 0.0);
        }
    }
    return found;
}

Vector last_kept(const Tensor& mask) {
    const std::size_t tokens = tokens_of(mask);
    const Vector& kept = mask.values;
    Vector found(kept.size(), 0.0);
    for (std::size_t first = 0; first < kept.size(); first += tokens) {
        for (std::size_t at = std::min(first + tokens, kept.size()); at > first; --at) {
            if (kept[at - 1] != 0.0) {
                found[at - 1] = 1.0;
                break;
            }
        }
    }
    return found;
}

}  // namespace

Arrays::Arrays(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
        lives_.push_back(new_life());
    }
}

Elements Arrays::of(const Lookup& lookup) {
    using Source = Lookup::Source;
    if (lookup.source == Source::literal) {
        return {&lookup.literal, &lookup.life};
    }
    if (lookup.argument >= tensors_.size()) {
        refuse_record("a lookup wants an array that the call does not give");
    }
    const Tensor& tensor = tensors_[lookup.argument];
    if (lookup.source == Source::argument) {
        return {&tensor.values, &lives_[lookup.argument]};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [known, fresh] = derived_.try_emplace(
        {lookup.source, lookup.argument, lookup.window, lookup.causal});
    if (fresh) {
        known->second.numbers =
            lookup.source == Source::shares      ? shares(tensor)
            : lookup.source == Source::positions ? positions(tensor)
            : lookup.source == Source::last_kept ? last_kept(tensor)
            : lookup.source == Source::log_hidden
                ? log_hidden(tensor, kept_until(tensor))
                : log_hidden(tensor, visible_near(tensor, lookup.window, lookup.causal));
    }
    return {&known->second.numbers, &known->second.life};
}

}  // namespace atlasc
