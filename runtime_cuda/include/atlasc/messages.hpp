// Queries and answers between client and server: one sealed file each, or its bytes.
//
// The metadata names the kind, the engine, the query and the program. Everything else follows from
// the program: the arrays, their greatest sizes, and the level of each ciphertext. NAME/<m> is
// ciphertext m of an input or output. NAME is a public input of a query: an attention mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "atlasc/base/tensor_file.hpp"
#include "atlasc/engine.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

/// A query or an answer of an engine.
struct Message {
    Values values;
    std::map<std::string, Tensor> publics;  ///< public inputs of a query
    std::size_t count;                      ///< number of real inputs of the batch
    std::string query;                      ///< 128 random bits, the same in query and answer
};

/// A query or an answer with its ciphertexts as bytes.
struct SerializedMessage {
    std::string kind;    ///< "query" or "answer"
    std::string engine;  ///< engine of the ciphertexts
    std::string query;
    std::size_t count;
    std::map<std::string, std::vector<Bytes>> values{};
    std::map<std::string, Tensor> publics{};
    std::string name{};    ///< name in errors: the source of the message
    std::string digest{};  ///< SHA-256 of the source; empty if made here
};

/// Greatest number of bytes of a ciphertext at a level.
using CiphertextBytes = std::function<std::uint64_t(int level)>;

/// Those of an engine, which must outlive the result.
CiphertextBytes saved_bytes(const Engine& engine);

/// Greatest number of bytes of a message of this program, query or answer.
std::uint64_t message_bytes(const Interface& interface, const CiphertextBytes& most);

/// Bytes of a message with `count` inputs, as `message_writer` makes it. `bytes` of each ciphertext.
std::uint64_t message_size(const Interface& interface, const std::string& kind,
                           const std::string& engine, std::size_t count,
                           const CiphertextBytes& bytes);

/// Read a query or an answer (`kind`) of this program; needs no keys. Throws Error for anything
/// else, before more bytes are read than the program's messages have.
SerializedMessage read_message(const TensorFile& file, const std::string& kind,
                               const Interface& interface, const CiphertextBytes& most);

/// The content of a message's file. Throws Error: a public input is no mask of the expected shape.
TensorWriter message_writer(const Interface& interface, const SerializedMessage& message);

/// Loads a ciphertext of the input or output `name` and returns its level. The function may move the
/// bytes out, to free their memory. Throws Error: the ciphertext is damaged, or belongs to other keys.
using LoadCiphertext = std::function<int(const std::string& name, Bytes& bytes)>;

/// Loads the ciphertexts of a message one after the other. Throws Error: the ciphertexts belong to another
/// engine than `engine`, or to another level; and as `load`, with the place of the ciphertext.
void load_ciphertexts(SerializedMessage& message, const Interface& interface,
                      const std::string& engine, const LoadCiphertext& load);

/// A message as bytes, and back. The latter throws Error as `load_ciphertexts`.
SerializedMessage serialized(const Message& message, const std::string& kind,
                             const Interface& interface, const Engine& engine);
Message deserialized(SerializedMessage message, const Interface& interface, const Engine& engine);

/// Read a message for an engine: `read_message` and `deserialized`.
Message read_message(const TensorFile& file, const std::string& kind, const Interface& interface,
                     const Engine& engine);

/// Write a new file, which appears whole or not at all: `serialized` and `message_writer`.
void write_message(const std::string& path, const std::string& kind, const Interface& interface,
                   const Engine& engine, const Message& message);

}  // namespace atlasc
