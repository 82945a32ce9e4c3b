// The engine that encrypts, as the executables see it.
#include <memory>
#include <utility>

#include "atlasc/backend.hpp"
#include "key_files.hpp"

namespace atlasc::backend {
namespace {

using on_phantom::Ground;

std::unique_ptr<Ground> ground_of(const Interface& interface, std::uint64_t device_memory) {
    const on_phantom::Chain chain = on_phantom::chain_of(interface.parameters);
    on_phantom::require_security(chain);
    return std::make_unique<Ground>(chain, device_memory);
}

}  // namespace

const char* const name = "phantom";
const bool encrypts = true;

void generate_keys(const Interface& interface, const std::string& secret,
                   const std::string& evaluation) {
    const std::unique_ptr<Ground> ground = ground_of(interface, 0);
    on_phantom::write_keys(interface, *ground, secret, evaluation);
}

std::unique_ptr<Engine> client_engine(const Interface& interface, const std::string& secret) {
    std::unique_ptr<Ground> ground = ground_of(interface, 0);
    on_phantom::Role role = on_phantom::client_role(interface, *ground, secret);
    return std::make_unique<on_phantom::PhantomEngine>(std::move(ground), std::move(role));
}

std::unique_ptr<Engine> server_engine(const Interface& interface, const std::string& evaluation,
                                      std::uint64_t device_memory) {
    std::unique_ptr<Ground> ground = ground_of(interface, device_memory);
    on_phantom::Role role = on_phantom::server_role(interface, *ground, evaluation);
    return std::make_unique<on_phantom::PhantomEngine>(std::move(ground), std::move(role));
}

}  // namespace atlasc::backend
