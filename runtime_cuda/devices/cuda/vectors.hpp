// What the passes of butterflies.hpp work on: limbs of polynomials, and vectors of complex numbers.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ckks/ring/transforms.hpp"
#include "devices/cuda/butterflies.hpp"

namespace atlasc::ckks {

/// A prime q, -q^-1 modulo 2^64, and 2^128 modulo q (Montgomery 1985).
struct Modulus {
    Word q;
    Word negative_inverse;
    Word square;
};

/// x w / 2^64 modulo q: factors w have 2^64 in them, and take one word.
ATLASC_DEVICE inline Word product(Word x, Word w, const Modulus& modulus) {
    const Wide whole = static_cast<Wide>(x) * w;
    const Word multiple = static_cast<Word>(whole) * modulus.negative_inverse;
    const Wide sum = whole + static_cast<Wide>(multiple) * modulus.q;
    const Word rest = static_cast<Word>(sum >> 64);
    return rest >= modulus.q ? rest - modulus.q : rest;
}

/// Limbs of polynomials, transformed modulo their primes.
template <bool forwards>
struct ResidueVectors {
    using Number = Word;
    static constexpr std::size_t in_block = 2048;

    Limbs limbs;
    int log_degree;
    std::size_t size_q;
    std::size_t all;  ///< primes
    const Prime* primes;
    const Modulus* moduli;
    const Word* nodes;  ///< [prime][N]; backwards their inverses; short vectors have the first ones
    const Word* last;   ///< [prime]: by which results are multiplied, backwards
    bool begins = false;  ///< the pass that converts
    bool ends = false;    ///< the pass that writes the results of a division

    struct Limb {
        bool skipped;
        const Word* in;
        Word* out;
        Modulus modulus;
        const Word* nodes;
        Word last;
        const Word* dividend;  ///< null but where a division ends
        Word inverse;
        Word scale;  ///< backwards; 0: none
        const BlockConstants* block;  ///< null but where a conversion begins
        const Prime* prime;
        std::size_t hats;  ///< the prime's place among `all`
        std::size_t all;
        int log_degree;

        ATLASC_DEVICE Word get(std::size_t at) const {
            return block == nullptr ? in[at] : converted(at);
        }
        /// As `Converter` has it, without a division: it is done for each limb.
        ATLASC_DEVICE Word converted(std::size_t at) const {
            double quotient = 0.5;
            Wide sum = 0;
            for (std::size_t s = 0; s < block->size; ++s) {
                const Word y = in[(s << log_degree) + at];
                quotient += static_cast<double>(y) * block->shares[s];
                sum += static_cast<Wide>(y) * block->hats[s * all + hats];
            }
            sum += static_cast<Wide>(static_cast<Word>(quotient)) * block->minus[hats];
            return reduce(sum, *prime);
        }
        ATLASC_DEVICE void set(std::size_t at, Word x) const {
            const Word q = modulus.q;
            if (dividend != nullptr) {
                const Word value = dividend[at];
                const Word rest = value >= x ? value - x : value + q - x;
                x = product(product(rest, inverse, modulus), modulus.square, modulus);
            }
            out[at] = x;
        }
        ATLASC_DEVICE Word finished(Word x) const {
            if (forwards) {
                return x;
            }
            x = product(x, last, modulus);
            return scale == 0 ? x
                              : product(product(x, scale, modulus), modulus.square, modulus);
        }

        ATLASC_DEVICE void butterfly(Word& x, Word& y, std::size_t node) const {
            const Word q = modulus.q;
            const Word w = nodes[node];
            const Word second = forwards ? product(y, w, modulus) : y;
            const Word sum = x + second;
            const Word difference = x >= second ? x - second : x + q - second;
            x = sum >= q ? sum - q : sum;
            y = forwards ? difference : product(difference, w, modulus);
        }
    };

    ATLASC_DEVICE Limb vector(std::size_t number) const {
        // Polynomials share the nodes of a limb, so that they are worked on one after another.
        const std::size_t together = limbs.polynomials * limbs.copies;
        const std::size_t polynomial = number % together / limbs.copies;
        const std::size_t limb = number / together;
        const std::size_t prime = limbs.prime(limb, size_q);
        const std::size_t start = (number % limbs.copies * limbs.count + limb)
                                  << (log_degree - limbs.log_run);
        return {limbs.skips(polynomial, limb),
                limbs.in[polynomial] + (begins ? 0 : start),
                limbs.out[polynomial] + start,
                moduli[prime],
                nodes + (prime << log_degree),
                forwards ? 0 : last[prime],
                ends ? limbs.dividends[polynomial] + start : nullptr,
                ends ? limbs.inverses[limb] : 0,
                forwards || limbs.scales == nullptr ? 0 : limbs.scales[limb],
                begins ? &limbs.blocks[polynomial] : nullptr,
                primes + prime,
                prime,
                all,
                log_degree};
    }

    ResidueVectors in_place() const {
        ResidueVectors result = *this;
        std::copy(limbs.out, limbs.out + Limbs::most, result.limbs.in);
        result.begins = false;
        if (forwards && limbs.inverses != nullptr) {
            std::copy(limbs.quotients, limbs.quotients + Limbs::most, result.limbs.out);
            result.ends = true;
        }
        return result;
    }
};

/// Vectors of complex numbers, one after another.
template <bool forwards>
struct ComplexVectors {
    using Number = Complex;
    static constexpr std::size_t in_block = 1024;

    int log_size;
    Complex* data;
    const Complex* nodes;
    double factor;  ///< of results

    struct One {
        static constexpr bool skipped = false;
        Complex* data;
        const Complex* nodes;
        double factor;

        ATLASC_DEVICE Complex get(std::size_t at) const { return data[at]; }
        ATLASC_DEVICE void set(std::size_t at, const Complex& x) const { data[at] = x; }
        ATLASC_DEVICE Complex finished(const Complex& x) const {
            return {x.x * factor, x.y * factor};
        }

        /// Backwards with the conjugate of the node's root, which is its inverse.
        ATLASC_DEVICE void butterfly(Complex& x, Complex& y, std::size_t node) const {
            const Complex w = nodes[node];
            if (forwards) {
                const Complex turned{y.x * w.x - y.y * w.y, y.x * w.y + y.y * w.x};
                y = {x.x - turned.x, x.y - turned.y};
                x = {x.x + turned.x, x.y + turned.y};
            } else {
                const Complex rest{x.x - y.x, x.y - y.y};
                x = {x.x + y.x, x.y + y.y};
                y = {rest.x * w.x + rest.y * w.y, rest.y * w.x - rest.x * w.y};
            }
        }
    };

    ATLASC_DEVICE One vector(std::size_t number) const {
        return {data + (number << log_size), nodes, factor};
    }

    ComplexVectors in_place() const { return *this; }
};

}  // namespace atlasc::ckks
