// Sums of products of rotated ciphertexts and plaintexts: the first half of a linear transform.
#pragma once

#include "ckks/keys/key_switch.hpp"

namespace atlasc::ckks {

/// For each row of plaintexts, one for each baby, P times the sum of their products. A baby is P times
/// a ciphertext, rotated by a key or as it is. Plaintexts without words stand for no product. Ciphertexts have `limbs` primes, plaintexts the special ones besides.
std::vector<Extended> rotated_sums(const Ring& ring, const std::vector<Switched>& babies,
                                   const std::vector<std::vector<PlainValues>>& rows,
                                   std::size_t limbs);

}  // namespace atlasc::ckks
