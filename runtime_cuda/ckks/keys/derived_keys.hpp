// Rotation keys that a server derives from others (Lee, Lee, Kim and No, eprint 2022/532).
//
// A digit of a key for the amount k, at X^galois of k, is a ciphertext of g s(X^galois of k) under the
// secret s, modulo Q_l P. Rotated by r it is one of the key for k + r. The key of such a rotation is a
// root: an ordinary rotation key of another chain, whose moduli are the primes of P and of Q_l, and whose
// special primes are some of Q above l. So no root has a larger modulus than Q P. Each digit of the key
// for the amount 0 is known to everybody: (0, g) is a ciphertext of g s.
#pragma once

#include "ckks/keys/keys.hpp"

namespace atlasc::ckks {

/// Rotations from a key that is sent to one that is derived: each adds its error.
constexpr std::size_t most_hops = 8;

/// The derived amounts, each behind the one that it is derived from. Throws Error: a derivation has no
/// beginning or no end, or too many steps, or its keys do not reach their levels.
std::vector<std::size_t> derived_amounts(const KeyNeeds& needs, std::size_t slots);

/// The chain of roots: one level of all primes that are rotated, the special ones first, so that keys of
/// lower levels are the first primes. Throws Error: the chain has no such levels, or their primes are
/// smaller than one that is rotated.
Chain chain_of_roots(const Chain& chain, const Derivation& derivation);

/// What a client makes, and what a server derives of it.
struct PlannedKeys {
    PlannedKeys(const KeyNeeds& needs, const Chain& chain);

    std::size_t made() const { return sent.size() + roots.size(); }

    std::vector<KeyEntry> sent;
    std::optional<Chain> root_chain;  ///< if there are roots
    std::vector<KeyEntry> roots;
    std::vector<KeyEntry> derived;
};

/// Adds the keys that are derived to the others. `roots`: the ring of the roots `root_keys`, by amount.
void derive(const Ring& ring, const KeyNeeds& needs, const Ring& roots,
            const std::map<std::size_t, SwitchKey>& root_keys, EvaluationKeys& keys);

}  // namespace atlasc::ckks
