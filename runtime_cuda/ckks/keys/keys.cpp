#include "ckks/keys/keys.hpp"

#include <utility>

namespace atlasc::ckks {

KeyNeeds needs_of(const Interface& interface) {
    KeyNeeds needs;
    needs.relinearisation = interface.keys.relinearisation_level;
    needs.conjugation = interface.keys.conjugation_level;
    needs.rotations = interface.keys.rotations;
    needs.raising = interface.parameters.bootstraps();
    return needs;
}

std::vector<KeyEntry> entries_of(const KeyNeeds& needs, const Ring& ring) {
    using Kind = KeyEntry::Kind;
    std::vector<KeyEntry> entries;
    const auto add = [&](Kind kind, std::size_t amount, int level, const std::string& name) {
        if (level >= 0) {
            const std::size_t limbs = ring.chain().limbs_at(level);
            const std::size_t special = kind == Kind::to_sparse ? 1 : ring.size_p();
            const std::size_t digits = kind == Kind::to_dense          ? 1
                                       : kind == Kind::copies_to_dense ? raised_copies
                                                                       : ring.digits(limbs);
            entries.push_back({kind, amount, limbs, special, digits,
                               static_cast<std::uint32_t>(entries.size()), name});
        }
    };
    add(Kind::relinearisation, 0, needs.relinearisation, "relinearisation");
    add(Kind::conjugation, 0, needs.conjugation, "conjugation");
    if (needs.raising) {
        add(Kind::to_sparse, 0, 0, "to sparse");
        add(Kind::to_dense, 0, ring.chain().top(), "to dense");
        add(Kind::copies_to_dense, 0, ring.chain().top(), "copies to dense");
    }
    for (const auto& [amount, level] : needs.rotations) {
        add(Kind::rotation, amount, level, "rotation/" + std::to_string(amount));
    }
    return entries;
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
