// Sums of products of rotated ciphertexts and plaintexts: the first half of a linear transform.
#pragma once

#include "ckks/keys/key_switch.hpp"

namespace atlasc::ckks {

/// A ciphertext, rotated by a key with its digits; as it is where there is no key.
struct Baby {
    const Polys* x;
    const Digits* digits;
    const SwitchKey* key;
    std::uint32_t galois;
};

/// For each row of plaintexts, one for each baby, P times the sum of their products. Plaintexts without
/// words stand for no product. Ciphertexts have `limbs` primes, plaintexts the special ones besides.
std::vector<Extended> rotated_sums(const Ring& ring, const std::vector<Baby>& babies,
                                   const std::vector<std::vector<PlainValues>>& rows,
                                   std::size_t limbs);

/// P times the sum of the rotated ciphertexts themselves.
Extended rotated_sum(const Ring& ring, const std::vector<Baby>& babies, std::size_t limbs);

}  // namespace atlasc::ckks
