#include <algorithm>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

constexpr const char* format = "2";
constexpr std::size_t query_digits = 32;

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
std::vector<Expected> contents(const Interface& interface, bool is_query) {
    std::vector<Expected> result;
    if (is_query) {
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

[[noreturn]] void fail(const TensorFile& file, const std::string& why) {
    throw Error("file " + file.path() + " is damaged", why, "copy it again, or make it again");
}

/// Refuses arrays that a message does not have, or of another size, before they are read.
void check_arrays(const TensorFile& file, const Interface& interface, const Engine& engine,
                  bool is_query) {
    std::size_t count = 0;
    const auto check = [&](const std::string& name, const std::string& type,
                           const std::vector<std::size_t>& shape) {
        if (!file.has(name) || file.type(name) != type || file.shape(name) != shape) {
            fail(file, "its array " + name + " is missing, or of another size");
        }
        ++count;
    };
    for (const Expected& one : contents(interface, is_query)) {
        for (std::size_t part = 0; part < one.layout.ciphertexts(); ++part) {
            check(entry_name(one.name, part), "U8", {engine.saved_size(one.level)});
        }
    }
    for (const PublicInput& input : interface.publics) {
        if (is_query) {
            check(input.name, "F64", input.shape);
        }
    }
    if (file.names().size() != count) {
        fail(file, "it has arrays that the program does not know");
    }
}

Tensor mask_of(const TensorFile& file, const std::string& name) {
    Tensor mask = file.tensor(name);
    if (!std::all_of(mask.values.begin(), mask.values.end(),
                     [](double value) { return value == 0.0 || value == 1.0; })) {
        fail(file, "its mask " + name + " has another number than 0 and 1");
    }
    return mask;
}

Ciphertexts ciphertexts_of(const TensorFile& file, const Expected& wanted, const Engine& engine) {
    Ciphertexts parts;
    for (std::size_t part = 0; part < wanted.layout.ciphertexts(); ++part) {
        const std::string name = entry_name(wanted.name, part);
        parts.push_back(engine.load(file.bytes(name)));
        const int level = engine.level(parts.back());
        if (level != wanted.level) {
            fail(file, "its ciphertext " + name + " is at level " + std::to_string(level) +
                           ", not " + std::to_string(wanted.level));
        }
    }
    return parts;
}

}  // namespace

Message moved(const Message& message, const Engine& from, const Engine& to) {
    Message result{{}, message.publics, message.count, message.query};
    for (const auto& [name, parts] : message.values) {
        for (const Ciphertext& part : parts) {
            result.values[name].push_back(to.load(from.save(part)));
        }
    }
    return result;
}

void write_message(const std::string& path, const std::string& kind, const Interface& interface,
                   const Engine& engine, const Message& message) {
    TensorWriter writer({{"kind", kind},
                         {"format", format},
                         {"engine", engine.backend().name},
                         {"program", interface.identity},
                         {"query", message.query},
                         {"count", std::to_string(message.count)}});
    for (const auto& [name, parts] : message.values) {
        for (std::size_t part = 0; part < parts.size(); ++part) {
            writer.add(entry_name(name, part), engine.save(parts[part]));
        }
    }
    for (const auto& [name, tensor] : message.publics) {
        writer.add(name, tensor);
    }
    writer.write_sealed(path);
}

std::uint64_t message_bytes(const Interface& interface, const Engine& engine) {
    std::uint64_t most = 0;
    for (const bool is_query : {true, false}) {
        std::uint64_t bytes = 2 * TensorFile::small_header;  // its header, and its seal
        for (const Expected& one : contents(interface, is_query)) {
            bytes += one.layout.ciphertexts() * engine.saved_size(one.level);
        }
        for (const PublicInput& input : interface.publics) {
            bytes += is_query ? count_of(input.shape) * sizeof(double) : 0;
        }
        most = std::max(most, bytes);
    }
    return most;
}

Message read_message(const TensorFile& file, const std::string& kind, const Interface& interface,
                     const Engine& engine) {
    const std::string& path = file.path();
    const bool is_query = kind == "query";
    const std::string remedy = is_query ? "give what client encrypt wrote"
                                        : "give what server wrote";
    const std::string engine_name = engine.backend().name;
    if (file.fact("kind") != kind || file.fact("engine") != engine_name) {
        throw Error("file " + path + " holds no " + kind + " of the " + engine_name + " engine",
                    "", remedy);
    }
    file.require_format(format);
    if (file.fact("program") != interface.identity) {
        throw Error("file " + path + " belongs to another compiled program",
                    "it is for " + file.fact("program").substr(0, 8) + ", this is " +
                        interface.identity.substr(0, 8),
                    "client and server must be built from the same project");
    }
    file.require_seal();
    const auto count = plain_number(file.fact("count"));
    if (!count || *count < 1 || *count > interface.batch()) {
        fail(file, "it does not hold 1 to " + std::to_string(interface.batch()) + " inputs");
    }
    Message message{{}, {}, *count, file.fact("query")};
    if (!is_hexadecimal(message.query, query_digits)) {
        fail(file, "it does not say which query it is, or answers");
    }
    check_arrays(file, interface, engine, is_query);
    try {
        for (const Expected& one : contents(interface, is_query)) {
            message.values.emplace(one.name, ciphertexts_of(file, one, engine));
        }
    } catch (Error& error) {
        error.where = path;
        throw;
    }
    for (const PublicInput& input : interface.publics) {
        if (is_query) {
            message.publics[input.name] = mask_of(file, input.name);
        }
    }
    return message;
}

}  // namespace atlasc
