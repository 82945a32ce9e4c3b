// What an engine is made of: a ring in memory, and the keys of a role.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ckks/keys/keys.hpp"
#include "ckks/keys/public_key.hpp"
#include "ckks/keys/secret_key.hpp"

namespace atlasc::ckks {

/// Device memory and a ring on it.
struct Ground {
    Ground(const Chain& chain, std::uint64_t device_memory)
        : Ground(chain, std::make_shared<Memory>(device_memory)) {}
    Ground(const Chain& chain, std::shared_ptr<Memory> shared)
        : memory(std::move(shared)), ring(*memory, chain) {}
    /// Of the bootstraps that end at a lower level.
    Ground(const Ground& whole, int level) : memory(whole.memory), ring(whole.ring, level) {}

    std::shared_ptr<Memory> memory;
    Ring ring;
};

/// What an engine may do: a client has a secret, or a public key to encrypt with; a server has keys.
struct Role {
    std::string identity;  ///< of the key pair; every ciphertext carries it in files
    std::optional<SecretKey> secret;
    std::shared_ptr<const EvaluationKeys> keys;
    std::optional<PublicKey> public_key{};
};

}  // namespace atlasc::ckks
