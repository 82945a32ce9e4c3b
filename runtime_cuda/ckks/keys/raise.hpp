// Raises the modulus of a ciphertext that has nothing left but q_0: the first step of a bootstrap.
#pragma once

#include "ckks/keys/keys.hpp"

namespace atlasc::ckks {

/// A ciphertext of the first `limbs` primes of Q, from one of q_0. Its plaintext is m + q_0 I:
/// coefficients of I are small because the ciphertext is under a sparse secret while its residues are
/// read as integers. docs/bootstrapping.md.
Polys raised(const Ring& ring, const Polys& x, const EvaluationKeys& keys, std::size_t limbs);

/// The mean of its rotations by all multiples of slots / k, for k = raised_copies. The mean of the
/// rotations of a polynomial f is what f has of powers of X^k: [f]. With the sparse secret as the sum
/// of X^j t_j(X^k), that of c0 + c1 s is [c0] + the sum of [c1 X^j] t_j(X^k). So the digits are
/// [c1 X^j], with no key switch for a rotation. They are polynomials in X^k, and their transforms
/// short where a device has short ones.
Polys raised_mean(const Ring& ring, const Polys& x, const EvaluationKeys& keys, std::size_t limbs);

}  // namespace atlasc::ckks
