// Residues without gaps: a limb takes N times the bits of its prime, which are whole words. Keys are
// read more than anything else is, so that fewer bytes are less time too.
#pragma once

#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks {

/// Where the limbs of a packed polynomial lie: the first primes of Q, then special ones.
struct Packing {
    Packing(const Chain& chain, std::size_t limbs, std::size_t special);

    std::size_t limbs;    ///< of Q
    std::size_t special;
    int log_degree;
    std::uint32_t starts[most_primes + most_special + 1];  ///< bits of all limbs before each one

    std::size_t extended() const { return limbs + special; }
    std::size_t words() const { return start(extended()); }
    std::size_t bytes() const { return words() * sizeof(Word); }

    ATLASC_DEVICE std::size_t bits(std::size_t limb) const {
        return starts[limb + 1] - starts[limb];
    }
    /// The first word of a limb; of the end, behind the last one.
    ATLASC_DEVICE std::size_t start(std::size_t limb) const {
        return static_cast<std::size_t>(starts[limb]) << (log_degree - 6);
    }
};

/// Residue `at` of a packed limb.
ATLASC_DEVICE inline Word unpacked(const Word* limb, std::size_t bits, std::size_t at) {
    const std::size_t start = at * bits;
    const std::size_t shift = start % 64;
    Word x = limb[start / 64] >> shift;
    if (shift + bits > 64) {
        x |= limb[start / 64 + 1] << (64 - shift);
    }
    return x & ((Word{1} << bits) - 1);
}

/// Packs [limb][N], and back.
void pack(const Packing& packing, const Word* in, Word* out);
void unpack(const Packing& packing, const Word* in, Word* out);

/// Whether every residue of a packed polynomial in the host's memory is below its prime.
bool is_reduced(const Chain& chain, const Packing& packing, const Word* words);

}  // namespace atlasc::ckks
