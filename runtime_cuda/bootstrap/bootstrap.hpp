// A bootstrap on any engine, from the raised ciphertext on.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "atlasc/engine.hpp"
#include "atlasc/paterson_stockmeyer.hpp"
#include "linear_stages.hpp"
#include "parameters.hpp"

namespace atlasc::bootstrapping {

/// CtS, the modular reduction of real and imaginary parts, StC.
///
/// Raising the modulus is the engine's: it takes a ciphertext with nothing left but q0 through the
/// sparse secret to the top level, where at scale q0 its slots are U (I + e), I random integers and e
/// the message's coefficients times scale/q0. That takes residues, which no other engine has.
class Bootstrap {
public:
    /// Prepares matrices and polynomials. Throws Error, as `budget` does.
    explicit Bootstrap(const Parameters& parameters);

    /// Levels that it takes, of those that a raised ciphertext has.
    int levels() const;

    /// Rotations to the left -> the highest level at which it is used.
    std::map<std::size_t, int> rotations() const;

    /// The slots of the message, complex ones too, at level `levels_left`. The slots of `raised`, at
    /// the top level, as above.
    Ciphertext operator()(Engine& engine, const Ciphertext& raised) const;

    /// What `Engine::bootstrap_many` has to return: ciphertexts with real slots, two of them at a
    /// time as the parts of a complex one. `raise` is the engine's: it takes a ciphertext at level 0
    /// to the top level. What a ciphertext has in its imaginary part spoils its partner; one without
    /// a partner loses it.
    ///
    /// The last of an odd number takes one modular reduction instead of two. With real slots the
    /// coefficient of X^(N - k) is that of X^k, negated. So the lower coefficients h tell all:
    /// m = h + conj(h), if h has half the coefficient of X^0.
    Ciphertexts refresh(Engine& engine, const Ciphertexts& xs,
                        const std::function<Ciphertext(const Ciphertext&)>& raise) const;

private:
    using Stages = std::vector<std::vector<GiantStep>>;

    /// Half of the message: the other half comes with its conjugate. `real`: of the coefficients, the
    /// lower ones alone, the first one halved.
    Ciphertext half(Engine& engine, const Ciphertext& raised, bool real) const;
    Ciphertext reduce(Engine& engine, const Ciphertext& x, bool first_halved) const;

    int levels_left_;
    std::size_t slots_;
    Budget budget_;
    Stages coeffs_to_slots_;
    Stages slots_to_coeffs_;
    ChebyshevPlan chebyshev_;
};

}  // namespace atlasc::bootstrapping
