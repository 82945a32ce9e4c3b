#include "atlasc/messages.hpp"

#include <algorithm>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"

namespace atlasc {
namespace {

constexpr const char* format = "3";
constexpr const char* former_format = "2";  ///< its ciphertexts were not packed

/// The ciphertexts of an input or output.
struct Expected {
    std::string name;
    Layout layout;
    int level;
};

std::string entry_name(const std::string& name, std::size_t part) {
    return name + "/" + std::to_string(part);
}

/// What a message of a kind holds.
std::vector<Expected> contents(const Interface& interface, const std::string& kind) {
    std::vector<Expected> result;
    if (kind == "query") {
        for (const EncryptedInput& input : interface.inputs) {
            result.push_back({input.name, input.layout, input.level});
        }
    } else {
        for (const Output& output : interface.outputs) {
            result.push_back({output.name, output.layout, output.level});
        }
    }
    return result;
}

std::vector<PublicInput> masks(const Interface& interface, const std::string& kind) {
    return kind == "query" ? interface.publics : std::vector<PublicInput>{};
}

[[noreturn]] void fail(const TensorFile& file, const std::string& why) {
    throw Error(file.name() + " is damaged", why, "copy it again, or make it again");
}

/// The facts of a message of this program. Throws Error for another file.
SerializedMessage facts_of(const TensorFile& file, const std::string& kind,
                           const Interface& interface) {
    const bool is_query = kind == "query";
    const std::string found = file.fact("kind");
    if (found != kind) {
        throw Error(file.name() + (is_query ? " is no query" : " is no answer"),
                    found == "query" || found == "answer" ? "it is of the other kind" : "",
                    is_query ? "give the query that a client wrote"
                             : "give the answer that a server wrote");
    }
    file.require_format({former_format, format});
    const std::string program = file.fact("program");
    if (program != interface.identity) {
        throw Error(file.name() + " belongs to another compiled program",
                    "it is for " + program.substr(0, 8) + ", this is " +
                        interface.identity.substr(0, 8),
                    "client and server must use parts of the same program");
    }
    file.require_seal();
    const auto count = plain_number(file.fact("count"));
    if (!count || *count < 1 || *count > interface.batch()) {
        fail(file, "its count is not 1 to " + std::to_string(interface.batch()) +
                       ", as many inputs as the program answers at a time");
    }
    SerializedMessage message{kind, file.fact("engine"), file.fact("query"), *count};
    if (!is_hexadecimal(message.query, identity_size)) {
        fail(file, "it does not say which query it is, or answers");
    }
    message.name = file.name();
    return message;
}

/// Refuses arrays that a message does not have, or that are larger, before they are read.
void check_arrays(const TensorFile& file, const std::string& kind, const Interface& interface,
                  const CiphertextBytes& most) {
    std::size_t count = 0;
    const auto check = [&](const std::string& name, bool fits) {
        if (!fits) {
            fail(file, "its array " + name + " is missing, or of another size");
        }
        ++count;
    };
    for (const Expected& one : contents(interface, kind)) {
        for (std::size_t part = 0; part < one.layout.ciphertexts(); ++part) {
            const std::string name = entry_name(one.name, part);
            check(name, file.has(name) && file.type(name) == "U8" &&
                            file.shape(name).size() == 1 &&
                            file.shape(name)[0] <= most(one.level));
        }
    }
    for (const PublicInput& input : masks(interface, kind)) {
        check(input.name, file.has(input.name) && file.type(input.name) == "F64" &&
                              file.shape(input.name) == input.shape);
    }
    if (file.names().size() != count) {
        fail(file, "it has arrays that the program does not know");
    }
}

/// The refusal of a ciphertext that is at another level than the program has it.
Error wrong_level(int found, int wanted) {
    return Error("this is a ciphertext of another place in the program",
                 "it is at level " + std::to_string(found) + ", the program wants level " +
                     std::to_string(wanted));
}

/// A message without its arrays.
TensorWriter empty_message(const std::string& program, const SerializedMessage& message) {
    return TensorWriter({{"kind", message.kind},
                         {"format", format},
                         {"engine", message.engine},
                         {"program", program},
                         {"query", message.query},
                         {"count", std::to_string(message.count)}});
}

bool is_mask(const Tensor& tensor) {
    return std::all_of(tensor.values.begin(), tensor.values.end(),
                       [](double value) { return value == 0.0 || value == 1.0; });
}

}  // namespace

CiphertextBytes saved_bytes(const Engine& engine) {
    return [&engine](int level) { return engine.largest_size(level); };
}

std::uint64_t message_bytes(const Interface& interface, const CiphertextBytes& most) {
    std::uint64_t bytes = 0;
    for (const char* kind : {"query", "answer"}) {
        std::uint64_t one = 2 * TensorFile::small_header;  // its header, and its seal
        for (const Expected& expected : contents(interface, kind)) {
            one += expected.layout.ciphertexts() * most(expected.level);
        }
        for (const PublicInput& input : masks(interface, kind)) {
            one += count_of(input.shape) * sizeof(double);
        }
        bytes = std::max(bytes, one);
    }
    return bytes;
}

SerializedMessage read_message(const TensorFile& file, const std::string& kind,
                               const Interface& interface, const CiphertextBytes& most) {
    SerializedMessage message = facts_of(file, kind, interface);
    check_arrays(file, kind, interface, most);
    for (const Expected& one : contents(interface, kind)) {
        for (std::size_t part = 0; part < one.layout.ciphertexts(); ++part) {
            message.values[one.name].push_back(file.bytes(entry_name(one.name, part)));
        }
    }
    for (const PublicInput& input : masks(interface, kind)) {
        Tensor mask = file.tensor(input.name);
        if (!is_mask(mask)) {
            fail(file, "its mask " + input.name + " has another number than 0 and 1");
        }
        message.publics.emplace(input.name, std::move(mask));
    }
    message.digest = text_of(file.digest());
    return message;
}

std::uint64_t message_size(const Interface& interface, const std::string& kind,
                           const std::string& engine, std::size_t count,
                           const CiphertextBytes& bytes) {
    const std::string digits(2 * identity_size, '0');  // of a program that has no identity yet
    TensorWriter writer =
        empty_message(interface.identity.empty() ? digits : interface.identity,
                      {kind, engine, digits.substr(identity_size), count});
    for (const Expected& one : contents(interface, kind)) {
        for (std::size_t part = 0; part < one.layout.ciphertexts(); ++part) {
            const std::size_t size = bytes(one.level);
            writer.count(entry_name(one.name, part), "U8", {size}, size);
        }
    }
    for (const PublicInput& input : masks(interface, kind)) {
        writer.count(input.name, "F64", input.shape, count_of(input.shape) * sizeof(double));
    }
    return writer.sealed_size();
}

TensorWriter message_writer(const Interface& interface, const SerializedMessage& message) {
    TensorWriter writer = empty_message(interface.identity, message);
    for (const auto& [name, parts] : message.values) {
        for (std::size_t part = 0; part < parts.size(); ++part) {
            writer.add(entry_name(name, part), parts[part]);
        }
    }
    for (const PublicInput& input : masks(interface, message.kind)) {
        const auto mask = message.publics.find(input.name);
        if (mask == message.publics.end() || mask->second.shape != input.shape ||
            !is_mask(mask->second)) {
            throw Error("the public input " + input.name +
                            " is not a mask of the program's shape",
                        "", "make it with atlasc embed");
        }
        writer.add(input.name, mask->second);
    }
    return writer;
}

SerializedMessage serialized(const Message& message, const std::string& kind,
                             const Interface& interface, const Engine& engine) {
    SerializedMessage result{kind, name_in_files(engine.backend(), interface), message.query,
                             message.count};
    for (const auto& [name, parts] : message.values) {
        for (const Ciphertext& part : parts) {
            result.values[name].push_back(engine.save(part));
        }
    }
    result.publics = message.publics;
    result.name = "the " + kind;
    return result;
}

void load_ciphertexts(SerializedMessage& message, const Interface& interface,
                      const std::string& engine, const LoadCiphertext& load) {
    if (message.engine != engine) {
        throw Error(message.name + " has ciphertexts of the engine " + message.engine,
                    "these keys are of the engine " + engine,
                    "use keys and messages of one engine");
    }
    for (const Expected& one : contents(interface, message.kind)) {
        std::size_t part = 0;
        for (Bytes& bytes : message.values.at(one.name)) {
            try {
                if (const int level = load(one.name, bytes); level != one.level) {
                    throw wrong_level(level, one.level);
                }
            } catch (Error& error) {
                error.where = message.name + ": " + entry_name(one.name, part);
                throw;
            }
            ++part;
        }
    }
}

Message deserialized(SerializedMessage message, const Interface& interface, const Engine& engine) {
    Message result{{}, {}, message.count, message.query};
    load_ciphertexts(message, interface, name_in_files(engine.backend(), interface),
                     [&](const std::string& name, Bytes& bytes) {
                         Ciphertexts& parts = result.values[name];
                         parts.push_back(engine.load(std::exchange(bytes, {})));
                         return engine.level(parts.back());
                     });
    result.publics = std::move(message.publics);
    return result;
}

Message read_message(const TensorFile& file, const std::string& kind, const Interface& interface,
                     const Engine& engine) {
    return deserialized(read_message(file, kind, interface, saved_bytes(engine)), interface, engine);
}

void write_message(const std::string& path, const std::string& kind, const Interface& interface,
                   const Engine& engine, const Message& message) {
    message_writer(interface, serialized(message, kind, interface, engine)).write_sealed(path);
}

}  // namespace atlasc
