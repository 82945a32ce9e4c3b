// The engine that encrypts, as the executables see it.
#include <memory>
#include <utility>

#include "atlasc/backend.hpp"
#include "ckks/keys/key_files.hpp"

namespace atlasc::backend {

using ckks::Ground;
using ckks::ground_of;

const char* const name = ATLASC_DEVICE_NAME;
const bool encrypts = true;

void generate_keys(const Interface& interface, const std::string& secret,
                   const std::string& evaluation) {
    const std::unique_ptr<Ground> ground = ground_of(interface, 0);
    ckks::write_keys(interface, *ground, secret, evaluation);
}

std::unique_ptr<Engine> client_engine(const Interface& interface, const std::string& secret) {
    std::unique_ptr<Ground> ground = ground_of(interface, 0);
    ckks::Role role = ckks::client_role(interface, *ground, secret);
    return std::make_unique<ckks::CkksEngine>(std::move(ground), std::move(role));
}

std::unique_ptr<Engine> server_engine(const Interface& interface, const std::string& evaluation,
                                      std::uint64_t device_memory) {
    std::unique_ptr<Ground> ground = ground_of(interface, device_memory);
    ckks::Role role = ckks::server_role(interface, *ground, evaluation);
    return std::make_unique<ckks::CkksEngine>(std::move(ground), std::move(role));
}

}  // namespace atlasc::backend
