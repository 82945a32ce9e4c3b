// Key files of the engine.
#pragma once

#include <memory>

#include "atlasc/backend.hpp"
#include "atlasc/base/files.hpp"
#include "atlasc/interface.hpp"
#include "ckks/keys/role.hpp"

namespace atlasc::ckks {

/// The ring of a program, and memory for it: `device_memory` in bytes, 0 for all. Throws Error also
/// for fewer than 128 bits of security.
std::unique_ptr<Ground> ground_of(const Interface& interface, std::uint64_t device_memory = 0);

/// Make and write a secret key, its evaluation keys and, where it has a path, its public key; keys are
/// made one by one as they are written. Throws Error.
void write_keys(const Interface& interface, Ground& ground, const KeyPaths& paths,
                const KeyProgress& progress = {});

/// Bytes of the file of evaluation keys that `write_keys` makes.
std::uint64_t evaluation_bytes(const Interface& interface, const Chain& chain);

/// Client and server in one, with new keys that nothing is written of.
Role fresh_role(const Interface& interface, Ground& ground, const KeyProgress& progress = {});

/// The roles of the files. Throw Error: the file is none of them, damaged, for other parameters, or its
/// keys do not fit into the device's memory.
Role client_role(const Interface& interface, Ground& ground, PlainFile secret);
Role public_role(const Interface& interface, Ground& ground, PlainFile public_key);
Role server_role(const Interface& interface, Ground& ground, PlainFile evaluation);

}  // namespace atlasc::ckks
