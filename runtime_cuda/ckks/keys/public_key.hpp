// Encryption under a public key: an encryption of zero under the secret one.
#pragma once

#include "ckks/keys/sampling.hpp"
#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks {

class PublicKey {
public:
    /// (-a s + e, a) modulo all primes of Q, as `SecretKey::encrypt` makes it of zero.
    PublicKey(const Ring& ring, Polys zero) : ring_(ring), zero_(std::move(zero)) {}

    /// v (-a s + e, a) + (e0 + m, e1) for the values m modulo the first `limbs` primes of Q, with a
    /// fresh v in {-1, 0, 1} and fresh errors. Its error is about sqrt(4 N / 3) times as large as that
    /// of an encryption under the secret key.
    Polys encrypt(const Words& plaintext, std::size_t limbs) const;

    const Polys& zero() const { return zero_; }

private:
    const Ring& ring_;
    Polys zero_;
};

}  // namespace atlasc::ckks
