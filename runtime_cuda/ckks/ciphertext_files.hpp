// Sizes of ciphertexts in files and messages.
#pragma once

#include "ckks/ring/chain.hpp"

namespace atlasc::ckks {

/// Bytes of a ciphertext at a level, as an engine saves it (`Engine::saved_size`).
std::size_t ciphertext_bytes(const Chain& chain, int level, bool fresh);

}  // namespace atlasc::ckks
