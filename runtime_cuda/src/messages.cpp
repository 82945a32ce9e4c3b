#include "atlasc/backend.hpp"
#include "atlasc/error.hpp"
#include "atlasc/roles.hpp"

namespace atlasc {
namespace {

constexpr const char* format = "1";

std::string entry_name(const std::string& name, std::size_t part) {
    return name + "/" + std::to_string(part);
}

/// Layouts of what a message of a kind holds, by name.
std::map<std::string, Layout> contents(const Interface& interface, const std::string& kind) {
    std::map<std::string, Layout> result;
    if (kind == "query") {
        for (const EncryptedInput& input : interface.inputs) {
            result.emplace(input.name, input.layout);
        }
    } else {
        for (const Output& output : interface.outputs) {
            result.emplace(output.name, output.layout);
        }
    }
    return result;
}

}  // namespace

Message moved(const Message& message, const Engine& from, const Engine& to) {
    Message result{{}, message.publics, message.count};
    for (const auto& [name, packed] : message.values) {
        Packed copy{packed.layout, {}};
        for (const Ciphertext& part : packed.parts) {
            copy.parts.push_back(to.load(from.save(part)));
        }
        result.values.emplace(name, std::move(copy));
    }
    return result;
}

void write_message(const std::string& path, const std::string& kind, const Interface& interface,
                   const Engine& engine, const Message& message) {
    TensorWriter writer({{"kind", kind},
                         {"format", format},
                         {"engine", backend::name},
                         {"program", interface.identity},
                         {"count", std::to_string(message.count)}});
    for (const auto& [name, packed] : message.values) {
        for (std::size_t part = 0; part < packed.parts.size(); ++part) {
            writer.add(entry_name(name, part), engine.save(packed.parts[part]));
        }
    }
    for (const auto& [name, tensor] : message.publics) {
        writer.add(name, tensor);
    }
    writer.write(path);
}

Message read_message(const std::string& path, const std::string& kind, const Interface& interface,
                     const Engine& engine) {
    const TensorFile file(path);
    const std::string remedy = kind == "query" ? "give what client encrypt wrote"
                                               : "give what server wrote";
    if (file.fact("kind") != kind || file.fact("format") != format ||
        file.fact("engine") != backend::name) {
        throw Error("file " + path + " holds no " + kind + " of the " + backend::name + " engine",
                    "", remedy);
    }
    if (file.fact("program") != interface.identity) {
        throw Error("file " + path + " belongs to another compiled program",
                    "it is for " + file.fact("program").substr(0, 8) + ", this is " +
                        interface.identity.substr(0, 8),
                    "client and server must be built from the same project");
    }
    Message message{{}, {}, 0};
    const std::string count = file.fact("count");
    if (count.empty() || count.size() > 9 ||
        count.find_first_not_of("0123456789") != std::string::npos) {
        throw Error("file " + path + " is damaged", "it does not say how many inputs it holds");
    }
    message.count = std::stoul(count);
    try {
        for (const auto& [name, layout] : contents(interface, kind)) {
            Packed packed{layout, {}};
            for (std::size_t part = 0; part < layout.ciphertexts(); ++part) {
                packed.parts.push_back(engine.load(file.bytes(entry_name(name, part))));
            }
            message.values.emplace(name, std::move(packed));
        }
    } catch (Error& error) {
        error.where = path;
        throw;
    }
    for (const PublicInput& input : interface.publics) {
        if (kind == "query") {
            message.publics[input.name] = file.tensor(input.name);
        }
    }
    return message;
}

}  // namespace atlasc
