// What the passes of butterflies.hpp work on: limbs of polynomials, and vectors of complex numbers.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ckks/ring/transforms.hpp"
#include "devices/cuda/butterflies.hpp"
#include "devices/cuda/moduli.hpp"

namespace atlasc::ckks {

/// Limbs of polynomials, transformed modulo their primes.
template <bool forwards>
struct ResidueVectors {
    using Number = Word;
    static constexpr std::size_t in_block = 2048;
    static constexpr bool held = false;

    Limbs limbs;
    int log_degree;
    std::size_t size_q;
    std::size_t all;  ///< primes
    const Prime* primes;
    const Modulus* moduli;
    const Word* nodes;  ///< [prime][N]; backwards their inverses; short vectors have the first ones
    const Word* last;   ///< [prime]: by which results are multiplied, backwards
    bool ends = false;    ///< the pass that writes the results of a division

    struct Limb {
        bool skipped;
        const Word* in;
        Word* out;
        const Modulus* modulus;
        const Word* nodes;
        Word last;
        const Word* dividend;  ///< null but where a division ends
        Word inverse;
        Word scale;  ///< backwards; 0: none

        ATLASC_DEVICE Word get(std::size_t at) const { return in[at]; }
        ATLASC_DEVICE Word operand(std::size_t at) const { return in[at]; }
        ATLASC_DEVICE void set(std::size_t at, Word x) const {
            out[at] = dividend == nullptr ? x : modulus->quotient(dividend[at], x, inverse);
        }

        template <typename Function>
        ATLASC_DEVICE void with_arithmetic(const Function& function) const {
            if (modulus->in_doubles) {
                function(Arithmetic<Doubles>{modulus->doubles, nodes, last, scale});
            } else {
                function(Arithmetic<Integers>{modulus->integers, nodes, last, scale});
            }
        }
    };

    template <typename Residues>
    struct Arithmetic {
        Residues modulus;
        const Word* nodes;
        Word last;
        Word scale;

        ATLASC_DEVICE Word number(Word x) const { return modulus.number(x); }
        ATLASC_DEVICE Word finished(Word x) const {
            if (forwards) {
                return modulus.word(modulus.reduced(x));
            }
            x = modulus.product(x, last);
            return modulus.word(scale == 0 ? x : modulus.times(x, scale));
        }
        ATLASC_DEVICE void butterfly(Word& x, Word& y, std::size_t node, int log_apart) const {
            modulus.template butterfly<forwards>(x, y, nodes[node], log_apart);
        }
    };

    ATLASC_DEVICE Limb vector(std::uint32_t number) const {
        // Polynomials share the nodes of a limb, so that they are worked on one after another.
        const auto copies = static_cast<std::uint32_t>(limbs.copies);
        const std::uint32_t together = static_cast<std::uint32_t>(limbs.polynomials) * copies;
        const std::uint32_t polynomial = number % together / copies;
        const std::uint32_t limb = number / together;
        const std::size_t prime = limbs.prime(limb, size_q);
        const std::size_t start = (number % copies * limbs.count + limb)
                                  << (log_degree - limbs.log_run);
        return {limbs.skips(polynomial, limb),
                limbs.in[polynomial] + start,
                limbs.out[polynomial] + start,
                moduli + prime,
                nodes + (prime << log_degree),
                forwards ? 0 : last[prime],
                ends ? limbs.dividends[polynomial] + start : nullptr,
                ends ? limbs.inverses[limb] : 0,
                forwards || limbs.scales == nullptr ? 0 : limbs.scales[limb]};
    }

    ResidueVectors in_place() const {
        ResidueVectors result = *this;
        std::copy(limbs.out, limbs.out + Limbs::most, result.limbs.in);
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
    static constexpr bool held = false;

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
        ATLASC_DEVICE Complex operand(std::size_t at) const { return data[at]; }
        ATLASC_DEVICE void set(std::size_t at, const Complex& x) const { data[at] = x; }

        template <typename Function>
        ATLASC_DEVICE void with_arithmetic(const Function& function) const {
            function(*this);
        }
        ATLASC_DEVICE Complex number(const Complex& x) const { return x; }
        ATLASC_DEVICE Complex finished(const Complex& x) const {
            return {x.x * factor, x.y * factor};
        }

        /// Backwards with the conjugate of the node's root, which is its inverse.
        ATLASC_DEVICE void butterfly(Complex& x, Complex& y, std::size_t node, int) const {
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
