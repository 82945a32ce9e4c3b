#include "sim/noise.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace atlasc::sim {
namespace {

constexpr double error_variance = 10.5;   // of a coefficient of an error: ckks/keys/sampling.hpp
constexpr int digit_room = 10;            // bits: ckks/ring/chain.hpp

/// For each level the sum of (D/P)^2 over the digits that a key switch takes there, whose moduli are
/// D; of P the special primes that the level computes with (`ckks::special_for`). Sizes in bits
/// decide, as primes are the greatest of their sizes.
std::vector<double> squared_ratios(const Parameters& parameters) {
    const Moduli& moduli = *parameters.moduli;
    const int special = std::accumulate(moduli.special.begin(), moduli.special.end(), 0);
    std::vector<double> sums;
    double full = 0.0;  // of the digits below the last one
    int digit = 0;
    const auto square = [&](int most) { return std::exp2(2.0 * std::min(digit - most, 0)); };
    const auto used = [&] {  // by the only digit
        int bits = 0;
        for (auto p = moduli.special.begin();
             p != moduli.special.end() && bits < digit + digit_room; ++p) {
            bits += *p;
        }
        return bits;
    };
    for (int level = 0; level <= parameters.max_level; ++level) {
        const int bits = moduli.primes[static_cast<std::size_t>(level)];
        if (digit > 0 && digit + bits > special) {
            full += square(special);
            digit = 0;
        }
        digit += bits;
        sums.push_back(full + square(full == 0.0 ? used() : special));
    }
    return sums;
}

}  // namespace

Noise Noise::ckks(const Parameters& parameters, std::uint64_t seed) {
    const double degree = 2.0 * static_cast<double>(parameters.slots);
    const auto& moduli = parameters.moduli;
    std::vector<double> log_scales(1, moduli ? moduli->scale : log_scale);
    double bootstrap = 1.2e-5;
    if (parameters.bootstraps()) {
        log_scales = moduli->log_scales;
        bootstrap = std::exp2(-20.5);  // measured at N = 2^16 (docs/bootstrapping.md)
    }
    const double scale = std::exp2(log_scales[0]);
    const double unit = std::sqrt(degree / 2) / scale;  // a slot, of coefficients of variance 1
    const double rounding = (1 + 2 * degree / 3) / 12;
    const double digit = unit * std::sqrt(degree * error_variance / 12);
    const double rescale = unit * std::sqrt(rounding);
    Noise noise;
    noise.fresh = unit * std::sqrt(error_variance + 1.0 / 12);
    noise.rescale = rescale;
    noise.key_switch = std::sqrt(2.0) * rescale;
    if (moduli) {
        for (const double squares : squared_ratios(parameters)) {
            noise.digits.push_back(digit * std::sqrt(squares));
        }
        noise.relinearize = noise.digits.back() / scale;
    }
    noise.settle = rescale;
    noise.encode = unit * std::sqrt(1.0 / 12);
    noise.bootstrap = bootstrap;
    noise.seed = seed;
    noise.log_scales = std::move(log_scales);
    return noise;
}

double Noise::key_switch_at(int level) const {
    return digits.empty() ? key_switch
                          : std::hypot(key_switch, digits[static_cast<std::size_t>(level)]);
}

double Noise::rescale_at(int level) const {
    const auto at = static_cast<std::size_t>(level);
    return at < log_scales.size() ? rescale * std::exp2(log_scales[0] - log_scales[at]) : rescale;
}

}  // namespace atlasc::sim
