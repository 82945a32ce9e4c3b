// What an engine has beside the arithmetic: keys, and a name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

/// Called before each key with its name, how many are made, and how many there will be.
using KeyProgress =
    std::function<void(const std::string& name, std::size_t made, std::size_t total)>;

/// Where keys are written.
struct KeyPaths {
    std::string secret;
    std::string evaluation;    ///< the keys that a server evaluates with
    std::string public_key{};  ///< empty: there is to be none
};

/// A kind of engine.
struct Backend {
    /// In files, which are refused by another one.
    const char* name;

    /// False where ciphertexts hide nothing: the executables then say so.
    bool encrypts;

    /// Make the keys of a client and its server, as new files.
    void (*generate_keys)(const Interface& interface, const KeyPaths& paths,
                          const KeyProgress& progress);

    /// An engine that encrypts and decrypts, from the file of a secret key or its bytes.
    std::unique_ptr<Engine> (*client_engine)(const Interface& interface, PlainFile secret);

    /// An engine that encrypts alone, from a public key: anybody may have it.
    std::unique_ptr<Engine> (*public_engine)(const Interface& interface, PlainFile public_key);

    /// An engine that executes the program; it has no secret key. `device_memory`: bytes of a device
    /// that it may use, 0 for all; an engine without a device refuses any other number.
    std::unique_ptr<Engine> (*server_engine)(const Interface& interface, PlainFile evaluation,
                                             std::uint64_t device_memory);

    /// Client and server in one, with new keys that stay in memory.
    std::unique_ptr<Engine> (*fresh_engine)(const Interface& interface,
                                            const KeyProgress& progress);
};

/// Cleartext slots that behave like ciphertexts; in every build.
extern const Backend sim_backend;

/// CKKS, in builds for a device.
extern const Backend ckks_backend;

/// The one that ATLASC_ENGINE named when this library was built.
const Backend& built_backend();

/// One of this build, by its name; throws Error.
const Backend& backend_named(const std::string& name);

}  // namespace atlasc
