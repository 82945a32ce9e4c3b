// Encryption and decryption under a secret key.
#pragma once

#include "ckks/keys/sampling.hpp"
#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks {

/// A ciphertext whose part 1 is uniform: all that is known of it is the seed.
struct Encryption {
    Polys polys;
    Seed seed;
};

class SecretKey {
public:
    /// Coefficients in {-1, 0, 1}.
    SecretKey(const Ring& ring, const Coefficients& secret);

    /// (-a s + e + m, a) for the values m modulo the first `limbs` primes of Q, with a fresh a. The
    /// seed of a is public and of nothing else: e has one of its own.
    Encryption encrypt(const Words& plaintext, std::size_t limbs) const;

    /// c0 + c1 s modulo the first `limbs` primes; overwritten at its end.
    Words decrypt(const Polys& x, std::size_t limbs) const;

private:
    const Ring& ring_;
    Words secret_;
};

/// Part 1 of an encryption, from its public seed.
void sample_ciphertext_part(const Ring& ring, const Seed& seed, const Polys& x);

}  // namespace atlasc::ckks
