// Number theoretic transforms of one limb, by processor.
//
// A butterfly of Cooley and Tukey (forward) or Gentleman and Sande (backward) multiplies by a known
// root with Shoup's precomputed quotient; numbers stay within a few q between stages and are reduced
// at the end (Harvey 2014, Faster arithmetic for number-theoretic transforms).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckks/ring/arithmetic.hpp"
#include "devices/host/vectors/cpu.hpp"

namespace atlasc::ckks {

/// A factor w and its quotient by q, in the form that kernels multiply by: w and floor(w 2^64 / q)
/// for any prime, w and floor(w 2^52 / q) for IFMA, and for AVX2 the bits of two doubles, which are
/// w in (-q/2, q/2) and w / q.
struct Factor {
    Word value;
    Word quotient;
};

Factor factor_of(Word w, Word q, Cpu cpu);

/// Many of them.
struct Roots {
    std::vector<Word> values;
    std::vector<Word> quotients;
};

/// The tables of a prime: powers of psi and of its inverse in bit-reversed order.
struct NttTable {
    Word q;
    int log_degree;
    Cpu cpu;  ///< whose transforms it is for
    Roots forward;
    Roots backward;
    Factor scale;  ///< N^-1
    Factor last;   ///< N^-1 times the root of the last backward stage
};

/// Primes that IFMA and AVX2 have kernels for. Smaller ones are of no use; eight packed residues of
/// the smallest are the sixteen bytes that AVX2 reads at a time.
constexpr int fast_bits = 50;
constexpr int least_fast_bits = 16;

/// How numbers modulo q are computed on this processor.
inline Cpu cpu_for(Word q) {
    return q >> fast_bits == 0 && q >> (least_fast_bits - 1) != 0 ? cpu() : Cpu::portable;
}

/// Of a degree that is the table's or, modulo the same prime, smaller: its powers of a root of unity
/// are the table's first ones. Vector kernels want one of at least `least_forward`.
void forward_portable(Word* limb, const NttTable& table, int log_degree);
constexpr int least_forward = 5;  ///< log2: two vectors after a first pass
/// Of the values `in`, which may be the limb itself.
void backward_portable(Word* limb, const Word* in, const NttTable& table);

}  // namespace atlasc::ckks
