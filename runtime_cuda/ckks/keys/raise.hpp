// Raises the modulus of a ciphertext that has nothing left but q_0: the first step of a bootstrap.
#pragma once

#include "ckks/keys/keys.hpp"

namespace atlasc::ckks {

/// A ciphertext of the first `limbs` primes of Q, from one of q_0. Its plaintext is m + q_0 I:
/// coefficients of I are small because the ciphertext is under a sparse secret while its residues are
/// read as integers. docs/bootstrapping.md. Or the sum of its rotations by all multiples of
/// slots / copies, for which there are keys.
Polys raised(const Ring& ring, const Polys& x, const EvaluationKeys& keys, std::size_t limbs,
             std::size_t copies);

}  // namespace atlasc::ckks
