#include "ckks/keys/keys.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "ckks/keys/derived_keys.hpp"

namespace atlasc::ckks {
namespace {

/// Names in files, in the order in which keys are made; rotations follow, by their amounts.
const std::string single[] = {"relinearisation", "conjugation", "to sparse", "to dense",
                              "copies to dense"};
const std::string rotation = "rotation/";
const std::string root = "root/";

}  // namespace

KeyNeeds needs_of(const Interface& interface) {
    KeyNeeds needs;
    needs.relinearisation = interface.keys.relinearisation_level;
    needs.conjugation = interface.keys.conjugation_level;
    needs.rotations = interface.keys.rotations;
    needs.raising = interface.parameters.bootstraps();
    needs.derivation = interface.keys.derivation;
    derived_amounts(needs, interface.parameters.slots);
    return needs;
}

KeyEntry rotation_of(const Chain& chain, std::size_t amount, int level) {
    const std::size_t limbs = chain.limbs_at(level);
    return {KeyEntry::Kind::rotation, amount, limbs, chain.special.size(), digits_of(chain, limbs),
            0, rotation + std::to_string(amount)};
}

std::vector<KeyEntry> entries_of(const KeyNeeds& needs, const Chain& chain) {
    using Kind = KeyEntry::Kind;
    std::vector<KeyEntry> entries;
    const auto add = [&](Kind kind, std::size_t amount, int level, const std::string& name) {
        if (level >= 0) {
            const std::size_t limbs = chain.limbs_at(level);
            const std::size_t special = kind == Kind::to_sparse ? 1 : chain.special.size();
            const std::size_t digits = kind == Kind::to_dense          ? 1
                                       : kind == Kind::copies_to_dense ? raised_copies
                                                                       : digits_of(chain, limbs);
            entries.push_back({kind, amount, limbs, special, digits,
                               static_cast<std::uint32_t>(entries.size()), name});
        }
    };
    add(Kind::relinearisation, 0, needs.relinearisation, single[0]);
    add(Kind::conjugation, 0, needs.conjugation, single[1]);
    if (needs.raising) {
        add(Kind::to_sparse, 0, 0, single[2]);
        add(Kind::to_dense, 0, chain.top(), single[3]);
        add(Kind::copies_to_dense, 0, chain.top(), single[4]);
    }
    for (const auto& [amount, level] : needs.rotations) {
        if (needs.derivation.roots.count(amount) == 0) {
            add(Kind::rotation, amount, level, rotation + std::to_string(amount));
        }
    }
    return entries;
}

std::vector<KeyEntry> roots_of(const KeyNeeds& needs, const Chain& roots, std::size_t first) {
    std::set<std::size_t> amounts;
    for (const auto& [amount, by] : needs.derivation.roots) {
        amounts.insert(by);
    }
    std::vector<KeyEntry> entries;
    for (const std::size_t amount : amounts) {
        KeyEntry& entry = entries.emplace_back(rotation_of(roots, amount, roots.top()));
        entry.number = static_cast<std::uint32_t>(first + entries.size() - 1);
        entry.name = root + std::to_string(amount);
    }
    return entries;
}

void number_by(std::vector<std::string> names, std::vector<KeyEntry>& entries) {
    const auto place = [](const std::string& name) {
        const auto kind = std::find(std::begin(single), std::end(single), name) - std::begin(single);
        const auto amount_behind = [&](const std::string& start) {
            return name.compare(0, start.size(), start) == 0
                       ? std::strtoull(name.c_str() + start.size(), nullptr, 10)
                       : 0;
        };
        const bool is_root = name.compare(0, root.size(), root) == 0;
        return std::make_pair(kind + (is_root ? 1 : 0), amount_behind(is_root ? root : rotation));
    };
    std::sort(names.begin(), names.end(),
              [&](const auto& one, const auto& other) { return place(one) < place(other); });
    for (KeyEntry& entry : entries) {
        const auto found = std::find(names.begin(), names.end(), entry.name);
        entry.number = static_cast<std::uint32_t>(found - names.begin());
    }
}

void keep(EvaluationKeys& keys, const KeyEntry& entry, SwitchKey key) {
    using Kind = KeyEntry::Kind;
    switch (entry.kind) {
        case Kind::relinearisation:
            keys.relinearisation = std::move(key);
            break;
        case Kind::conjugation:
            keys.conjugation = std::move(key);
            break;
        case Kind::rotation:
            keys.rotations.emplace(entry.amount, std::move(key));
            break;
        case Kind::to_sparse:
            keys.to_sparse = std::move(key);
            break;
        case Kind::to_dense:
            keys.to_dense = std::move(key);
            break;
        case Kind::copies_to_dense:
            keys.copies_to_dense = std::move(key);
            break;
    }
}

}  // namespace atlasc::ckks
