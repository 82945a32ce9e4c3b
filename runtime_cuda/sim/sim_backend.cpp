// Keys of the simulation: an identity that makes the roles real, though nothing is encrypted.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "atlasc/backend.hpp"
#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "sim_engine.hpp"

namespace atlasc {
namespace {

using sim::Noise;

constexpr const char* name = "sim";

constexpr const char* secret_kind = "secret key";
constexpr const char* evaluation_kind = "evaluation keys";
constexpr const char* public_kind = "public key";

Metadata facts(const Interface& interface, const char* kind, const std::string& key) {
    return {{"kind", kind},
            {"engine", name},
            {"note", sim::note},
            {"parameters", interface.parameters.text()},
            {"key", key}};
}

/// The noise that the environment asks for: ATLASC_SIM_NOISE=SEED; exact without it.
Noise noise_of(const Interface& interface, std::uint64_t role) {
    const char* seed = std::getenv("ATLASC_SIM_NOISE");
    if (seed == nullptr) {
        return {};
    }
    const auto number = plain_number(seed);
    if (!number) {
        throw Error("ATLASC_SIM_NOISE is no seed", "it is \"" + std::string(seed) + "\"",
                    "set it to an integer, or unset it for exact numbers");
    }
    return Noise::ckks(interface.parameters, 2 * *number + role);
}

/// Opens a key file of a kind that fits the parameters.
TensorFile open(const Interface& interface, PlainFile plain, const std::string& kind) {
    TensorFile file(std::move(plain));
    if (file.fact("kind") != kind || file.fact("engine") != name ||
        !is_hexadecimal(file.fact("key"), identity_size)) {
        throw Error(file.name() + " holds no " + kind + " of the " + name + " engine", "",
                    "give what client keygen wrote");
    }
    if (kind == secret_kind) {
        file.require_secret();
    }
    const std::string wanted = interface.parameters.text();
    if (file.fact("parameters") != wanted) {
        throw Error(file.name() + " was made for other parameters",
                    "it has " + file.fact("parameters") + "; the program needs " + wanted,
                    "make keys with this program's client");
    }
    file.require_seal();
    return file;
}

/// Amounts and highest levels of the rotation keys in a file.
std::map<std::size_t, int> rotations_of(const TensorFile& file, std::size_t slots) {
    constexpr double levels = 1000.0;
    const auto is_index = [](double value, double end) {
        return value >= 0.0 && value < end && value == std::floor(value);
    };
    const Tensor rotations = file.tensor("rotations");
    std::map<std::size_t, int> reach;
    for (std::size_t at = 0; at + 1 < rotations.values.size(); at += 2) {
        const double amount = rotations.values[at];
        const double level = rotations.values[at + 1];
        if (!is_index(amount, static_cast<double>(slots)) || !is_index(level, levels)) {
            throw Error(file.name() + " is damaged", "a rotation key is none",
                        "make keys with this program's client");
        }
        reach[static_cast<std::size_t>(amount)] = static_cast<int>(level);
    }
    return reach;
}

TensorWriter evaluation_keys(const Interface& interface, const std::string& key) {
    TensorWriter server(facts(interface, evaluation_kind, key));
    Tensor rotations{{interface.keys.rotations.size(), 2}, {}};
    for (const auto& [amount, level] : interface.keys.rotations) {
        rotations.values.push_back(static_cast<double>(amount));
        rotations.values.push_back(level);
    }
    server.add("rotations", rotations);
    return server;
}

void generate_keys(const Interface& interface, const KeyPaths& paths, const KeyProgress&) {
    const std::string key = random_identity();
    TensorWriter client(facts(interface, secret_kind, key));
    evaluation_keys(interface, key).write_sealed(paths.evaluation, Access::secret);
    client.write_sealed(paths.secret, Access::secret);
    if (!paths.public_key.empty()) {
        TensorWriter(facts(interface, public_kind, key)).write_sealed(paths.public_key);
    }
}

std::unique_ptr<Engine> client_engine(const Interface& interface, PlainFile secret) {
    const TensorFile file = open(interface, std::move(secret), secret_kind);
    return std::make_unique<sim::SimEngine>(interface.parameters, std::nullopt,
                                            file.fact("key"), sim::Holds::secret,
                                            noise_of(interface, 0));
}

std::unique_ptr<Engine> public_engine(const Interface& interface, PlainFile public_key) {
    const TensorFile file = open(interface, std::move(public_key), public_kind);
    return std::make_unique<sim::SimEngine>(interface.parameters, std::nullopt,
                                            file.fact("key"), sim::Holds::public_key,
                                            noise_of(interface, 0));
}

std::unique_ptr<Engine> server_engine(const Interface& interface, PlainFile evaluation,
                                      std::uint64_t device_memory) {
    if (device_memory != 0) {
        throw Error("the " + std::string(name) + " engine has no device whose memory it could use",
                    "", "leave --device-memory out");
    }
    const TensorFile file = open(interface, std::move(evaluation), evaluation_kind);
    const std::map<std::size_t, int> reach = rotations_of(file, interface.parameters.slots);
    for (const auto& [amount, level] : interface.keys.rotations) {
        const auto found = reach.find(amount);
        if (found == reach.end() || found->second < level) {
            throw Error(file.name() + " lacks a rotation key that the program needs",
                        "amount " + std::to_string(amount) + " to level " + std::to_string(level),
                        "make keys with this program's client");
        }
    }
    return std::make_unique<sim::SimEngine>(interface.parameters, reach, file.fact("key"),
                                            sim::Holds::evaluation, noise_of(interface, 1));
}

std::unique_ptr<Engine> fresh_engine(const Interface& interface, const KeyProgress&) {
    return std::make_unique<sim::SimEngine>(interface.parameters, interface.keys.rotations,
                                            random_identity(), sim::Holds::secret,
                                            noise_of(interface, 0));
}

Sizes sizes(const Interface& interface) {
    const std::size_t one = sim::saved_size(interface.parameters.slots);
    return {evaluation_keys(interface, std::string(identity_size, '0')).sealed_size(),
            [one](int, bool) { return one; }};
}

}  // namespace

const Backend sim_backend = {
    name,         false, generate_keys,           client_engine, public_engine, server_engine,
    fresh_engine, sizes, [] { return std::vector<Device>(); },
    [] { return std::uint64_t{0}; }};

}  // namespace atlasc
