// The errors that the simulation draws.
#pragma once

#include <cstdint>
#include <vector>

#include "atlasc/interface.hpp"

namespace atlasc::sim {

constexpr double log_scale = 40.0;  ///< bits that each level adds

/// Standard deviations of the Gaussian error that a primitive adds to each slot.
struct Noise {
    double fresh = 0.0;
    double rescale = 0.0;  ///< of a factor, before a product with a ciphertext or a plaintext
    double key_switch = 0.0;        ///< the roundings of a rotation or a conjugation
    std::vector<double> digits{};   ///< what the digits of its key add to these, by level
    double relinearize = 0.0;       ///< of the key switch of a product, at the highest level
    double settle = 0.0;            ///< of decryption: the rescaling that is still owed
    double encode = 0.0;            ///< of a vector, for the factor 1
    double bootstrap = 0.0;
    /// A coefficient c of what is bootstrapped comes back as c - bootstrap_cubic c^3.
    double bootstrap_cubic = 0.0;
    std::uint64_t seed = 0;
    /// log2 of the scale at each level, of which `rescale` is the one at 0; empty: all the same.
    std::vector<double> log_scales{};

    /// The errors of CKKS with a dense ternary secret (Cheon et al. 2017, section 3), as in Python's
    /// atlasc/targets/noise.py, which has the sources; a test compares them.
    static Noise ckks(const Parameters& parameters, std::uint64_t seed);

    /// What a rotation or a conjugation adds at a level.
    double key_switch_at(int level) const;

    /// The rounding of a ciphertext at a level.
    double rescale_at(int level) const;
};

}  // namespace atlasc::sim
