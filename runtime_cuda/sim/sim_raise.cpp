// The raising of a modulus, simulated exactly: the slots are rounded to a plaintext, encrypted under a
// fresh sparse secret, and read as integers.
#include "sim_engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ring.hpp"
#include "slots.hpp"

namespace atlasc::sim {
namespace {

using Integers = std::vector<std::int64_t>;

constexpr int sparse_weight = 32;  // as the sets of atlasc/program/bootstrap have it

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

/// Coefficients of a ciphertext of `message`, its modulus raised: I + message / q0, times `unit`.
std::vector<double> raised(const Integers& message, int base_bits, double unit,
                           std::mt19937_64& random) {
    const std::int64_t q0 = std::int64_t{1} << base_bits;
    std::uniform_int_distribution<std::int64_t> uniform(-q0 / 2, q0 / 2 - 1);
    Integers c1(message.size());
    for (std::int64_t& coefficient : c1) {
        coefficient = uniform(random);
    }
    // A ring of a test may have fewer coefficients than the secret has entries.
    const int weight = std::min(sparse_weight, static_cast<int>(message.size() / 2));
    const Integers product = times_sparse_secret(c1, weight, random);
    std::vector<double> result(message.size());
    for (std::size_t at = 0; at < message.size(); ++at) {
        const std::int64_t whole = message[at] - product[at] + q0 / 2;
        const std::int64_t c0 = ((whole % q0) + q0) % q0 - q0 / 2;
        result[at] = unit * std::ldexp(static_cast<double>(c0 + product[at]), -base_bits);
    }
    return result;
}

}  // namespace

Ciphertext SimEngine::raise_modulus(const Ciphertext& x, int level, std::size_t copies) {
    if (!parameters_.bootstraps() || of(x).level != 0 || level < 0 ||
        level >= static_cast<int>(parameters_.moduli->log_scales.size()) || copies == 0 ||
        slots() % copies != 0) {
        throw Error("raise_modulus is impossible",
                    "it takes parameters that bootstrap by a record, a ciphertext at level 0, and "
                    "a level and a number of copies of the bootstrap");
    }
    const Moduli& moduli = *parameters_.moduli;
    const double unit = std::exp2(moduli.log_scales.back() -
                                  moduli.log_scales[static_cast<std::size_t>(level)]);
    Integers message;
    for (const double coefficient : polynomial_of(of(x).values)) {
        message.push_back(std::llrint(std::ldexp(coefficient, moduli.scale)));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const ComplexVector one = slots_of(raised(message, moduli.primes[0], unit, random_));
    ComplexVector mean(one.size(), 0.0);
    const std::size_t period = slots() / copies;
    for (std::size_t slot = 0; slot < slots(); ++slot) {
        mean[slot % period] += one[slot] / static_cast<double>(copies);
    }
    for (std::size_t slot = period; slot < slots(); ++slot) {
        mean[slot] = mean[slot - period];
    }
    return std::make_shared<Slots>(std::move(mean), level);
}

}  // namespace atlasc::sim
