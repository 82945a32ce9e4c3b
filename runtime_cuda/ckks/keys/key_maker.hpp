// Makes evaluation keys from a secret.
#pragma once

#include "ckks/keys/keys.hpp"
#include "ckks/keys/sampling.hpp"

namespace atlasc::ckks {

/// Holds the secret key, and a sparse secret that nobody else ever sees.
class KeyMaker {
public:
    /// `seed`: of the parts of keys that are uniform; it is public.
    KeyMaker(const Ring& ring, const Coefficients& secret, const Seed& seed);

    /// The words of one key.
    SwitchKey make(const KeyEntry& entry) const;

    /// All of them.
    EvaluationKeys make(const KeyNeeds& needs, const KeyProgress& progress = {}) const;

private:
    /// The secret that a key takes to another, and the other one; overwritten at their end.
    Words content(const KeyEntry& entry) const;
    Words target(const KeyEntry& entry) const;
    /// t of the sparse secret, which is the sum over `number` of X^number t(X^raised_copies).
    Words part_of_sparse(std::size_t number) const;

    const Ring& ring_;
    Seed seed_;
    Secret<Seed> error_seed_;
    Words secret_;
    Words sparse_;
};

/// The uniform part of a digit of a key, [limb][N], from the public seed.
void sample_uniform_part(const Ring& ring, const Seed& seed, const KeyEntry& entry,
                         std::size_t digit, Word* out);

}  // namespace atlasc::ckks
