// What an engine library supplies beside the arithmetic: keys. A program links exactly one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"

namespace atlasc::backend {

/// Names the engine in files, which are refused by another one.
extern const char* const name;

/// False where ciphertexts hide nothing: the executables then say so.
extern const bool encrypts;

/// Make a key pair: the secret key, and the keys that a server evaluates with. New files.
void generate_keys(const Interface& interface, const std::string& secret,
                   const std::string& evaluation);

/// An engine that encrypts and decrypts.
std::unique_ptr<Engine> client_engine(const Interface& interface, const std::string& secret);

/// An engine that executes the program; it has no secret key. `device_memory`: bytes of a device that
/// it may use, 0 for all; an engine without a device refuses any other number.
std::unique_ptr<Engine> server_engine(const Interface& interface, const std::string& evaluation,
                                      std::uint64_t device_memory = 0);

}  // namespace atlasc::backend
