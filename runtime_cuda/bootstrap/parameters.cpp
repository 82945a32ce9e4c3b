#include "parameters.hpp"

#include <algorithm>
#include <cmath>

#include "atlasc/error.hpp"

namespace atlasc::bootstrapping {
namespace {

constexpr int max_prime_bits = 60;  // of Phantom and of SEAL, whose arithmetic it has

void append(std::vector<int>& bits, int count, int size) {
    bits.insert(bits.end(), static_cast<std::size_t>(count), size);
}

/// The scales of StC's levels go from the program's to EvalMod's in equal steps.
std::vector<double> log_scales(const Parameters& p, int eval_levels) {
    std::vector<double> scales(static_cast<std::size_t>(p.levels_left) + 1, p.scale_bits);
    const auto step = static_cast<double>(p.eval_bits - p.scale_bits) / p.stc_stages;
    for (int stage = 1; stage <= p.stc_stages; ++stage) {
        scales.push_back(p.scale_bits + stage * step);
    }
    scales.insert(scales.end(), static_cast<std::size_t>(eval_levels), p.eval_bits);
    // A raised ciphertext at scale q0 holds coefficients over q0, I + e.
    const auto down = static_cast<double>(p.base_bits - p.eval_bits) / p.cts_stages;
    for (int stage = 1; stage <= p.cts_stages; ++stage) {
        scales.push_back(p.eval_bits + stage * down);
    }
    return scales;
}

}  // namespace

double Parameters::ratio() const { return std::ldexp(1.0, base_bits - scale_bits); }

Parameters named(const std::string& name, long ring_degree) {
    Parameters p;
    p.ring_degree = ring_degree;
    if (name == "fourteen_levels_40") {
        p.base_bits = p.cts_bits = p.special_bits = 50;
        p.scale_bits = p.stc_bits = 40;
        p.special_primes = 7;
    } else if (name != "fourteen_levels") {
        throw Error("there are no bootstrap parameters " + name);
    }
    return p;
}

Budget budget(const Parameters& p) {
    const int largest =
        std::max({p.base_bits, p.scale_bits, p.stc_bits, p.eval_bits, p.cts_bits});
    if (largest > max_prime_bits) {
        throw Error("a prime of more than 60 bits");
    }
    if (p.levels_left < 1 || p.stc_stages < 1 || p.cts_stages < 1 || p.special_primes < 1) {
        throw Error("levels, stages and special primes must be at least 1");
    }
    Budget result;
    const int bound = choose_bound(p.ring_degree, p.secret_weight, p.log2_failure);
    result.reduction = make_eval_mod({p.ring_degree, bound, p.ratio(), p.amplitude}, p.degree,
                                     p.double_angles, p.arcsine);
    const EvalMod& reduction = result.reduction;

    result.prime_bits.push_back(p.base_bits);
    append(result.prime_bits, p.levels_left, p.scale_bits);
    append(result.prime_bits, p.stc_stages, p.stc_bits);
    append(result.prime_bits, reduction.levels(), p.eval_bits);
    append(result.prime_bits, p.cts_stages, p.cts_bits);
    result.log_scales = log_scales(p, reduction.levels());

    for (const int bits : result.prime_bits) {
        result.log_qp += bits;
    }
    result.log_qp += p.special_primes * p.special_bits;

    // CtS gives half of the complex coefficients, so that c + conj(c) is their real part.
    result.cts_factor = 0.5 / reduction.domain;
    result.stc_factor = reduction.gain * p.ratio();
    return result;
}

}  // namespace atlasc::bootstrapping
