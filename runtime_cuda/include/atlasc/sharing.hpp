// Answers that may be passed on: decrypted numbers with noise that hides the secret key.
//
// CKKS decrypts to the answer plus an error that depends on the secret key, and somebody with enough
// exact decryptions may recover the key (Li and Micciancio, Eurocrypt 2021). Numbers that are passed
// on get Gaussian noise so large that the error vanishes in it, and are rounded to the digits left.
//
// The noise is that of Li, Micciancio, Schultz and Sorrell ("Securing Approximate Homomorphic
// Encryption Using Differential Privacy", Crypto 2022): with errors of Euclidean norm B, tau answers
// and kappa bits, its standard deviation is sigma = sqrt(12 tau) 2^(kappa/2) B. Then the
// Kullback-Leibler divergence between the shared numbers with and without the errors is at most
// B^2 / (2 sigma^2) = 2^-kappa / (24 tau) an answer: nobody tells the two apart with an advantage
// above 2^(-kappa/2) / 6.9 over all tau answers. OpenFHE's `NOISE_FLOODING_DECRYPT` takes the same
// factor, by default with kappa = 30 and tau = 1, times a standard deviation that its user measures in
// a run beforehand. Lattigo's `DecodePublic` adds no noise: it rounds to a number of bits that its
// user chooses.
//
// Here B is sqrt(n) times the compiled bound of an element's error (`Output::noise`), for the n numbers
// of an answer. Divergence is convex, so the mean square of an error that is random is enough. The
// bound holds for inputs like those of calibration and under the noise model; the proof is for a client
// that encrypts its own inputs and a server that runs the program as given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "atlasc/client_data.hpp"
#include "atlasc/interface.hpp"

namespace atlasc {

/// The noise and the rounding of one output, in units of its answer.
struct Flood {
    double deviation;  ///< standard deviation of the noise
    int decimals;      ///< places after the point that are kept; negative: rounded before the point
    int digits;        ///< decimal digits of the greatest magnitude that are left
};

/// By the name of an output.
using Floods = std::map<std::string, Flood>;

/// How well shared numbers hide the key, and how often.
struct Sharing {
    static constexpr int least_bits = 30;

    std::int64_t bits = least_bits;  ///< kappa
    std::int64_t shares = 1;         ///< tau: answers that the keys are to share
};

/// What the answers to `count` inputs need that are passed on together, as one of `sharing.shares`
/// under one key. Empty where the program has no bound on its errors, or one that is no positive number.
Floods floods(const Interface& interface, std::size_t count, const Sharing& sharing = {});

/// The same, for before anything is decrypted. Throws Error: too few bits or shares, no bound, or an
/// output of which no digit is left.
Floods require_digits(const Interface& interface, std::size_t count, const Sharing& sharing);

/// Exact answers with their noise, rounded. `floods`: of `require_digits`, for as many inputs.
Tensors flooded(Tensors exact, const Floods& floods);

/// Standard normal numbers from the system's randomness, up to 8.6 in magnitude.
Vector secure_normal(std::size_t count);

/// The normal number that 128 random bits stand for.
double normal_number(std::uint64_t first, std::uint64_t second);

/// The multiple of 10^-decimals next to a number; of two as near, the even one. As `numpy.round`.
double rounded(double number, int decimals);

}  // namespace atlasc
