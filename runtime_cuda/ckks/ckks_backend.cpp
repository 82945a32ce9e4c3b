// The engine that encrypts, as the roles see it.
#include <memory>
#include <utility>

#include "atlasc/backend.hpp"
#include "ckks/ciphertext_files.hpp"
#include "ckks/ckks_engine.hpp"
#include "ckks/keys/key_files.hpp"

namespace atlasc {
namespace {

using ckks::CkksEngine;
using ckks::Ground;
using ckks::ground_of;

/// An engine of the role that `make_role(ground)` makes.
template <typename MakeRole>
std::unique_ptr<Engine> engine_of(const Interface& interface, std::uint64_t device_memory,
                                  MakeRole make_role) {
    std::unique_ptr<Ground> ground = ground_of(interface, device_memory);
    ckks::Role role = make_role(*ground);
    return std::make_unique<CkksEngine>(std::move(ground), std::move(role));
}

void generate_keys(const Interface& interface, const KeyPaths& paths,
                   const KeyProgress& progress) {
    ckks::write_keys(interface, *ground_of(interface), paths, progress);
}

std::unique_ptr<Engine> client_engine(const Interface& interface, PlainFile secret) {
    return engine_of(interface, 0, [&](Ground& ground) {
        return ckks::client_role(interface, ground, std::move(secret));
    });
}

std::unique_ptr<Engine> public_engine(const Interface& interface, PlainFile public_key) {
    return engine_of(interface, 0, [&](Ground& ground) {
        return ckks::public_role(interface, ground, std::move(public_key));
    });
}

std::unique_ptr<Engine> server_engine(const Interface& interface, PlainFile evaluation,
                                      std::uint64_t device_memory) {
    return engine_of(interface, device_memory, [&](Ground& ground) {
        return ckks::server_role(interface, ground, std::move(evaluation));
    });
}

std::unique_ptr<Engine> fresh_engine(const Interface& interface, const KeyProgress& progress) {
    return engine_of(interface, 0, [&](Ground& ground) {
        return ckks::fresh_role(interface, ground, progress);
    });
}

Sizes sizes(const Interface& interface) {
    const ckks::Chain chain = ckks::chain_of(interface.parameters);
    return {ckks::evaluation_bytes(interface, chain), [chain](int level, bool fresh) {
                return ckks::ciphertext_bytes(chain, level, fresh);
            }};
}

}  // namespace

const Backend ckks_backend = {
    ATLASC_DEVICE_NAME, true,  generate_keys, client_engine,   public_engine, server_engine,
    fresh_engine,       sizes, ckks::devices, ckks::free_bytes};

}  // namespace atlasc
