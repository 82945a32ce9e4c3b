// Number theoretic transforms of one limb, by processor.
//
// A butterfly of Cooley and Tukey (forward) or Gentleman and Sande (backward) multiplies by a known
// root with Shoup's precomputed quotient; numbers stay below 4q or 2q between stages and are reduced
// at the end (Harvey 2014, Faster arithmetic for number-theoretic transforms).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckks/arithmetic.hpp"

namespace atlasc::ckks {

/// floor(root 2^bits / q) of each root.
struct Roots {
    std::vector<Word> values;
    std::vector<Word> quotients;
};

/// The tables of a prime: powers of psi and of its inverse in bit-reversed order.
struct NttTable {
    Word q;
    int log_degree;
    int bits;  ///< of quotients: 64, or 52 for AVX-512 IFMA
    Roots forward;
    Roots backward;
    Word scale;           ///< N^-1
    Word scale_quotient;
    Word last;            ///< N^-1 times the root of the last backward stage
    Word last_quotient;
};

/// Whether this processor has AVX-512 with IFMA.
bool has_ifma();

/// Primes below this many bits can be transformed with IFMA.
constexpr int ifma_bits = 50;

void forward_portable(Word* limb, const NttTable& table);
void backward_portable(Word* limb, const NttTable& table);
void forward_ifma(Word* limb, const NttTable& table);
void backward_ifma(Word* limb, const NttTable& table);

}  // namespace atlasc::ckks
