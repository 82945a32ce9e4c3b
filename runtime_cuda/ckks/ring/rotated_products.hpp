// Rotated ciphertexts times plaintexts, without the rotated ciphertexts.
#pragma once

#include "ckks/ring/switch_kernels.hpp"

namespace atlasc::ckks {

/// Sums of products: of all babies, which are ciphertexts that a key switch rotates, with a plaintext
/// each. A baby is computed where it is used, for all sums at once, and lies nowhere as a whole.
struct RotatedProducts {
    static constexpr std::size_t together = 8;  ///< sums that one call computes
    static constexpr int log_tile = 5;  ///< a device may work on tiles of so many places

    int log_degree;
    std::size_t limbs;
    std::size_t size_q;
    std::size_t size_p;
    const Prime* primes;
    const InnerProduct* babies;  ///< they accumulate nothing; where there are no digits: not rotated
    std::size_t count;           ///< of babies
    const PlainValues* plains;   ///< [sum][baby]; without words: no product
    std::size_t sums;
    Word* const* out;            ///< of each sum [part][limb][N]
    bool runs;                   ///< every plaintext's values have runs of a tile or more
    int prime_bits;              ///< every prime is below 2^prime_bits

    std::size_t extended() const { return limbs + size_p; }
    std::size_t calls() const {
        return ((sums + together - 1) / together * extended()) << log_degree;
    }

    ATLASC_DEVICE void operator()(std::size_t call) const {
        const std::size_t size = (limbs + size_p) << log_degree;
        const std::size_t at = call % size;
        const std::size_t first = call / size * together;
        const std::size_t own = sums - first < together ? sums - first : together;
        const std::size_t start = at >> log_degree << log_degree;
        const Prime& q = primes[prime_of(at >> log_degree, limbs, size_q)];
        Word totals[together][2] = {};
        for (std::size_t baby = 0; baby < count; ++baby) {
            const InnerProduct& one = babies[baby];
            Wide b;
            Wide a;
            one.products(start + permuted(static_cast<std::uint32_t>(at - start), one.galois,
                                          log_degree),
                         b, a);
            const Word x[2] = {reduce(b, q), reduce(a, q)};
            for (std::size_t sum = 0; sum < own; ++sum) {
                const PlainValues& plain = plains[(first + sum) * count + baby];
                for (int part = 0; plain.words != nullptr && part < 2; ++part) {
                    const Wide product = static_cast<Wide>(x[part]) * plain[at];
                    totals[sum][part] = reduce(product + totals[sum][part], q);
                }
            }
        }
        for (std::size_t sum = 0; sum < own; ++sum) {
            out[first + sum][at] = totals[sum][0];
            out[first + sum][size + at] = totals[sum][1];
        }
    }
};

}  // namespace atlasc::ckks
