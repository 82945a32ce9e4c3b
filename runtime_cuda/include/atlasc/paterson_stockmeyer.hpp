// Depth-optimal evaluation of a Chebyshev sum on a ciphertext, by baby steps and giant steps
// (Paterson and Stockmeyer 1973; Han and Ki 2020; Bossuat et al. 2021, section 3).
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "atlasc/engine.hpp"

namespace atlasc {

/// A number, or one for each channel.
using Coefficient = std::vector<double>;

/// T_index = 2 T_left T_right - T_(left - right), with left >= right and index = left + right.
struct Power {
    std::size_t index;
    std::size_t left;
    std::size_t right;
};

/// Constant + sum of factor * T_index + sum of quotient * T_giant, `depth` levels below the
/// argument; a quotient is the position of an earlier sum.
struct Sum {
    int depth;
    Coefficient constant;
    std::vector<std::pair<Coefficient, std::size_t>> terms;
    std::vector<std::pair<std::size_t, std::size_t>> products;
};

/// Powers in order of computation, then sums; the last sum is the result.
struct ChebyshevPlan {
    std::vector<Power> powers;
    std::vector<Sum> sums;

    /// Products of two ciphertexts; the products of one sum are relinearised together.
    std::size_t ciphertext_products() const;
    std::size_t relinearisations() const;
    std::size_t scalar_products() const;
};

/// The cheapest plan over all numbers of baby steps, at the least depth.
/// `coefficients`: of T_0, T_1, ..., each with as many channels; finite.
ChebyshevPlan plan_chebyshev(const std::vector<Coefficient>& coefficients);

/// The sum of a ciphertext whose slots are in [-1, 1]. `plaintext` makes slots of a coefficient.
Ciphertext evaluate(const ChebyshevPlan& plan, Engine& engine, const Ciphertext& x,
                    const std::function<Plaintext(const Coefficient&)>& plaintext);

}  // namespace atlasc
