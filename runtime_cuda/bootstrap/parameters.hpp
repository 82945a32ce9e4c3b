// Moduli, levels and the modular reduction of a bootstrap.
#pragma once

#include <string>
#include <vector>

#include "eval_mod.hpp"

namespace atlasc::bootstrapping {

/// A chain of moduli, from what a ciphertext has left when it is bootstrapped to the top:
///
///   q0 | levels_left primes of the program | StC | EvalMod | CtS      beside: special primes
///
/// Sizes are in bits. EvalMod's primes are large, because its errors are amplified by q0/scale.
/// StC's may be small, because it handles nothing but the message. CtS's need to keep the rounding
/// of its matrices below EvalMod's errors.
struct Parameters {
    long ring_degree = 65536;
    double amplitude = 1.0;  ///< the largest absolute value of a slot
    int base_bits = 57;      ///< q0
    int scale_bits = 46;     ///< the program's scale and its primes
    int levels_left = 14;    ///< products after a bootstrap

    int stc_stages = 3;
    int stc_bits = 42;

    int degree = 127;  ///< of the Chebyshev sum; this and the next two as in make_eval_mod
    int double_angles = 0;
    int arcsine = 1;
    int eval_bits = 60;

    int cts_stages = 3;
    int cts_bits = 57;

    int special_primes = 5;
    int special_bits = 60;
    /// Of the sparse secret around the raising of the modulus: 164 bits of security at 65536 and q0
    /// times one special prime (atlasc/targets/estimates), where nothing larger is published.
    int secret_weight = 32;
    double log2_failure = -128.0;  ///< at most, that one bootstrap fails

    /// q0 / scale, the R of the modular reduction.
    double ratio() const;
};

/// A set by its name, at a ring degree: a smaller one than 65536 is for tests, not for secrets. There
/// is `fourteen_levels`, the defaults above, and `fourteen_levels_40`, a scale of 2^40 and primes of
/// at most 50 bits but in EvalMod. Throws Error for any other name.
Parameters named(const std::string& name, long ring_degree);

/// What follows from parameters.
struct Budget {
    EvalMod reduction;
    std::vector<int> prime_bits;     ///< of Q, from q0 up
    std::vector<double> log_scales;  ///< log2 of the scale at each level, from 0 up
    int log_qp = 0;                  ///< an upper bound of log2(QP), which security is judged by
    double cts_factor = 1.0;         ///< for coeffs_to_slots
    double stc_factor = 1.0;         ///< for slots_to_coeffs
};

/// Throws Error for parameters that no library takes: primes over 60 bits, q0 too small for the
/// scale and the amplitude.
Budget budget(const Parameters& parameters);

}  // namespace atlasc::bootstrapping
