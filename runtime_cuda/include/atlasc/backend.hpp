// Backends: kinds of engines, with their keys and names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

/// Called before each key with its name, the number of keys made, and their total number.
using KeyProgress =
    std::function<void(const std::string& name, std::size_t made, std::size_t total)>;

/// Paths of the key files.
struct KeyPaths {
    std::string secret;
    std::string evaluation;    ///< the server's evaluation keys
    std::string public_key{};  ///< empty: make no public key
};

/// Bytes of what an engine writes, by its parameters alone.
struct Sizes {
    std::uint64_t evaluation_keys;  ///< the file
    /// Of a ciphertext, as `Engine::saved_size`.
    std::function<std::size_t(int level, bool fresh)> ciphertext;
};

/// A GPU that this process may use.
struct Device {
    std::string name;
    std::uint64_t bytes;  ///< of its memory
};

/// A kind of engine.
struct Backend {
    const char* name;

    /// False if ciphertexts hide nothing; the executables then say so.
    bool encrypts;

    /// Make the keys of a client and its server, as new files.
    void (*generate_keys)(const Interface& interface, const KeyPaths& paths,
                          const KeyProgress& progress);

    /// An engine that encrypts and decrypts, from the file of a secret key or its bytes.
    std::unique_ptr<Engine> (*client_engine)(const Interface& interface, PlainFile secret);

    /// An engine that only encrypts, with a public key, which anybody may have.
    std::unique_ptr<Engine> (*public_engine)(const Interface& interface, PlainFile public_key);

    /// An engine that executes the program; it has no secret key. `device_memory`: greatest number
    /// of bytes of the device that it may use, 0 for all; an engine without a device accepts only
    /// 0.
    std::unique_ptr<Engine> (*server_engine)(const Interface& interface, PlainFile evaluation,
                                             std::uint64_t device_memory);

    /// Client and server in one, with new keys that stay in memory.
    std::unique_ptr<Engine> (*fresh_engine)(const Interface& interface,
                                            const KeyProgress& progress);

    /// Sizes of the files of an engine of this kind; nothing is made.
    Sizes (*sizes)(const Interface& interface);

    /// The GPUs that this process may use, none of which is touched. Empty for an engine on the
    /// processors. Throws Error: the engine needs a GPU, and there is none or no driver.
    std::vector<Device> (*devices)();

    /// Bytes that a new engine finds free on the first GPU; 0 for an engine on the processors.
    /// Throws Error: the GPU is lost, or another process has it for itself.
    std::uint64_t (*free_bytes)();
};

/// The simulation: cleartext slots that behave like ciphertexts. It is in every build.
extern const Backend sim_backend;

/// CKKS, in builds for a device.
extern const Backend ckks_backend;

/// Name of the engine in files of keys and messages; files of another name are refused. Devices encrypt
/// alike, so a client on processors makes the files of an engine of GPUs. The simulation makes its own.
std::string name_in_files(const Backend& backend, const Interface& interface);

/// The backends of this build: those that ATLASC_ENGINE named, in its order, and the simulation.
const std::vector<const Backend*>& built_backends();

/// The first of them.
const Backend& built_backend();

/// A backend of this build, by its name. Throws Error if there is none.
const Backend& backend_named(const std::string& name);

}  // namespace atlasc
