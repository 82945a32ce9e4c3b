#include "ckks/keys/derived_keys.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "atlasc/base/error.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Rows of a polynomial at X^galois: the first ones are those from `start` on, then those from 0 on.
struct TurnedRows {
    int log_degree;
    std::uint32_t galois;
    std::size_t first;
    std::size_t start;
    const Word* in;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t row = at >> log_degree;
        const auto place = static_cast<std::uint32_t>(at - (row << log_degree));
        const std::size_t from = row < first ? start + row : row - first;
        out[at] = in[(from << log_degree) + permuted(place, galois, log_degree)];
    }
};

/// A digit of the key for the amount 0, whose rows are in the order of roots: zero, and the factor on its
/// own primes.
struct KnownDigit {
    int log_degree;
    std::size_t rows;
    std::size_t special;  ///< rows before those of Q
    std::size_t begin;
    std::size_t end;
    const Word* factor;
    Word* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t row = at >> log_degree;
        const std::size_t limb = row - rows - special;
        const bool own = row >= rows + special && limb >= begin && limb < end;
        out[at] = own ? factor[limb] : 0;
    }
};

[[noreturn]] void refuse_derivation(const std::string& why) {
    throw Error("the keys of the program cannot be derived", why,
                "compile the model again, or restore the file");
}

/// One key, by a root from that of another amount, which is null for the amount 0.
SwitchKey derived(const Ring& ring, const KeyEntry& entry, const Ring& roots, const SwitchKey& root,
                  std::size_t from, const SwitchKey* source) {
    const int log_degree = ring.log_degree();
    const std::size_t special = entry.special;
    const std::size_t rows = special + entry.limbs;
    const Packing packing = entry.packing(ring.chain());
    const std::uint32_t galois = galois_of(ring, from);
    SwitchKey key{packing, Words(ring.memory(), entry.words(ring.chain()))};
    const Words parts = ring.polynomial(2 * rows);
    Word* const b = parts.get();
    Word* const a = b + rows * ring.degree();
    const Words unpacked = ring.polynomial(source == nullptr ? rows : source->packing.extended());
    for (std::size_t digit = 0; digit < entry.digits; ++digit) {
        if (source == nullptr) {
            const BlockConstants own = ring.digit(digit, entry.limbs);
            launch(2 * rows * ring.degree(),
                   KnownDigit{log_degree, rows, special, own.first, own.first + own.size,
                              ring.special_products(), b},
                   "key");
        } else {
            const Word* words = source->words.get() + 2 * digit * source->packing.words();
            for (Word* const part : {b, a}) {
                unpack(source->packing, words, unpacked.get());
                launch(rows * ring.degree(),
                       TurnedRows{log_degree, galois, special, source->packing.limbs,
                                  unpacked.get(), part},
                       "key");
                words += source->packing.words();
            }
        }
        // A key of the engine is for s at X^(1/galois). Without the turn by the root's amount, which
        // would make it one for s, the result needs no other turn than back.
        const Digits digits = decomposed(roots, {a}, rows, false);
        const Switched back{digits.of(0), &root, inverse_galois(ring, galois),
                            times_special(roots, b, nullptr, rows)};
        const Polys turned = std::move(switched(roots, {back}, rows)[0]);
        Word* to = key.words.get() + 2 * digit * packing.words();
        for (std::size_t part = 0; part < 2; ++part, to += packing.words()) {
            launch(rows * ring.degree(),
                   TurnedRows{log_degree, 1, entry.limbs, special, turned.part(part),
                              unpacked.get()},
                   "key");
            pack(packing, unpacked.get(), to);
        }
    }
    return key;
}

}  // namespace

std::vector<std::size_t> derived_amounts(const KeyNeeds& needs, std::size_t slots) {
    const Derivation& derivation = needs.derivation;
    std::vector<std::size_t> found;
    std::map<std::size_t, std::size_t> waiting;  // amount -> the one that it is derived from
    for (const auto& [amount, root] : derivation.roots) {
        const auto named = "the key for the rotation by " + std::to_string(amount);
        const auto level_of = [&](std::size_t one) {
            const auto key = needs.rotations.find(one);
            return key == needs.rotations.end() ? -1 : key->second;
        };
        if (root == 0 || root >= slots || amount >= slots) {
            refuse_derivation(named + " has no root");
        }
        const std::size_t from = (amount + slots - root) % slots;
        const int level = level_of(amount);
        if (level < 0 || level > derivation.level || (from != 0 && level_of(from) < level)) {
            refuse_derivation(named + " does not reach its level, or the key before it does not");
        }
        waiting.emplace(amount, from);
    }
    for (std::size_t hop = 0; hop < most_hops && !waiting.empty(); ++hop) {
        const std::map<std::size_t, std::size_t> before = waiting;
        for (const auto& [amount, from] : before) {
            if (before.count(from) == 0) {
                found.push_back(amount);
                waiting.erase(amount);
            }
        }
    }
    if (!waiting.empty()) {
        refuse_derivation("the key for the rotation by " + std::to_string(waiting.begin()->first) +
                          " is more than " + std::to_string(most_hops) +
                          " rotations away from one that is sent");
    }
    return found;
}

Chain chain_of_roots(const Chain& chain, const Derivation& derivation) {
    if (derivation.level < 0 || derivation.last <= derivation.level ||
        derivation.last > chain.top()) {
        refuse_derivation("roots have levels that the parameters do not have");
    }
    const auto place = [&](int level) {
        return chain.q.begin() + static_cast<std::ptrdiff_t>(chain.limbs_at(level));
    };
    Chain roots;
    roots.degree = chain.degree;
    roots.q = chain.special;
    roots.q.insert(roots.q.end(), chain.q.begin(), place(derivation.level));
    roots.special.assign(place(derivation.level), place(derivation.last));
    roots.limbs = {roots.q.size()};
    std::vector<int> bits;
    std::transform(roots.q.begin(), roots.q.end(), std::back_inserter(bits), bits_of);
    const int most = std::accumulate(roots.special.begin(), roots.special.end(), 0,
                                     [](int sum, const Prime& q) { return sum + bits_of(q); });
    if (roots.q.size() > most_primes || roots.special.size() > most_in_block ||
        most < *std::max_element(bits.begin(), bits.end())) {
        refuse_derivation("roots have too many primes, or too small ones");
    }
    roots.digits = groups_of(bits, most);
    return roots;
}

PlannedKeys::PlannedKeys(const KeyNeeds& needs, const Chain& chain)
    : sent(entries_of(needs, chain)) {
    if (needs.derivation.roots.empty()) {
        return;
    }
    root_chain = chain_of_roots(chain, needs.derivation);
    roots = roots_of(needs, *root_chain, sent.size());
    for (const auto& [amount, root] : needs.derivation.roots) {
        derived.push_back(rotation_of(chain, amount, needs.rotations.at(amount)));
    }
}

void derive(const Ring& ring, const KeyNeeds& needs, const Ring& roots,
            const std::map<std::size_t, SwitchKey>& root_keys, EvaluationKeys& keys) {
    for (const std::size_t amount : derived_amounts(needs, ring.slots())) {
        const KeyEntry entry = rotation_of(ring.chain(), amount, needs.rotations.at(amount));
        const std::size_t root = needs.derivation.roots.at(amount);
        const std::size_t from = (amount + ring.slots() - root) % ring.slots();
        const auto source = keys.rotations.find(from);
        keep(keys, entry,
             derived(ring, entry, roots, root_keys.at(root), from,
                     source == keys.rotations.end() ? nullptr : &source->second));
    }
}

}  // namespace atlasc::ckks
