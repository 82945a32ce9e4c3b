#include "sim_bootstrap.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ring.hpp"
#include "slots.hpp"

namespace atlasc::sim {
namespace {

using Integers = std::vector<std::int64_t>;

/// c1 s for a ternary secret s of a Hamming weight, modulo X^N + 1. Below 2^63 in absolute value if
/// weight * max |c1| is.
Integers times_sparse_secret(const Integers& c1, int weight, std::mt19937_64& random) {
    const std::size_t degree = c1.size();
    std::vector<bool> taken(degree, false);
    Integers product(degree, 0);
    for (int term = 0; term < weight; ++term) {
        std::size_t shift = random() % degree;  // a power of two: no bias
        while (taken[shift]) {
            shift = random() % degree;
        }
        taken[shift] = true;
        const std::int64_t sign = random() % 2 == 0 ? 1 : -1;
        for (std::size_t at = 0; at < degree; ++at) {
            const std::size_t to = at + shift;
            product[to % degree] += (to < degree ? sign : -sign) * c1[at];
        }
    }
    return product;
}

/// Coefficients over q0 of a ciphertext of `message`, its modulus raised: I + message / q0.
std::vector<double> raised(const Integers& message, const bootstrapping::Parameters& parameters,
                           std::mt19937_64& random) {
    const std::int64_t q0 = std::int64_t{1} << parameters.base_bits;
    std::uniform_int_distribution<std::int64_t> uniform(-q0 / 2, q0 / 2 - 1);
    Integers c1(message.size());
    for (std::int64_t& coefficient : c1) {
        coefficient = uniform(random);
    }
    // A ring of a test may have fewer coefficients than the secret has entries.
    const int weight = std::min(parameters.secret_weight, static_cast<int>(message.size() / 2));
    const Integers product = times_sparse_secret(c1, weight, random);
    std::vector<double> result(message.size());
    for (std::size_t at = 0; at < message.size(); ++at) {
        const std::int64_t whole = message[at] - product[at] + q0 / 2;
        const std::int64_t c0 = ((whole % q0) + q0) % q0 - q0 / 2;
        result[at] = std::ldexp(static_cast<double>(c0 + product[at]), -parameters.base_bits);
    }
    return result;
}

}  // namespace

Ciphertexts AlgorithmicBootstrap::operator()(Engine& engine, const Ciphertexts& xs,
                                             std::mt19937_64& random) const {
    const int top = parameters_.levels_left + bootstrap_.levels();
    const auto raise = [&](const Ciphertext& x) -> Ciphertext {
        Integers message;
        for (const double coefficient : polynomial_of(of(x).values)) {
            message.push_back(std::llrint(std::ldexp(coefficient, parameters_.scale_bits)));
        }
        return std::make_shared<Slots>(slots_of(raised(message, parameters_, random)), top);
    };
    return bootstrap_.refresh(engine, xs, raise);
}

}  // namespace atlasc::sim
