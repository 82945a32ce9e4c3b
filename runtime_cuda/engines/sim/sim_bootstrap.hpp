// The bootstrap of bootstrap/ on the simulation: its levels, rotation keys, scales and errors, on
// any machine.
#pragma once

#include <random>
#include <vector>

#include "atlasc/engine.hpp"
#include "bootstrap/bootstrap.hpp"

namespace atlasc::sim {

/// CtS, EvalMod and StC run on the engine's slots. Raising the modulus is simulated exactly: the
/// slots are rounded to a plaintext, encrypted under a fresh sparse secret, and read as integers.
class AlgorithmicBootstrap {
public:
    /// Throws Error, as `bootstrapping::budget` does.
    explicit AlgorithmicBootstrap(const bootstrapping::Parameters& parameters)
        : parameters_(parameters), bootstrap_(parameters) {}

    /// As Engine::bootstrap_many.
    Ciphertexts operator()(Engine& engine, const Ciphertexts& xs, std::mt19937_64& random) const;

private:
    bootstrapping::Parameters parameters_;
    bootstrapping::Bootstrap bootstrap_;
};

}  // namespace atlasc::sim
