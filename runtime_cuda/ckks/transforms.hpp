// The transforms of a device: of residues (NTT), and of slots (Fourier).
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ckks/arithmetic.hpp"
#include "ckks/device.hpp"

namespace atlasc::ckks {

/// Primes of at most so many bits are fast on the device.
int fast_prime_bits();

/// Number theoretic transforms of polynomials modulo X^N + 1: place i of the values holds that at
/// psi^(2 rev(i) + 1), for a root psi of order 2N and the reversal of log2 N bits.
class Transforms {
public:
    /// For primes q = 1 modulo 2N, N = 2^log_degree: those of Q, then `special` special ones.
    /// Throws Error: too little memory, or a library that fails.
    Transforms(Memory& memory, int log_degree, const std::vector<Prime>& primes,
               std::size_t special);
    ~Transforms();

    /// psi modulo the first prime.
    Word root() const { return root_; }

    /// In place, of `count` limbs that begin at `limb`, modulo the primes from `first` on. Operands
    /// and results are less than their primes.
    void forward(Word* limb, std::size_t count, std::size_t first) const;

    /// In place, of `limbs` primes of Q and all special ones, but for the limbs from `begin` to
    /// `end`.
    void forward_extended(Word* polynomial, std::size_t limbs, std::size_t begin,
                          std::size_t end) const;

    /// Coefficients of values; `out` and `in` may be the same.
    void backward(Word* out, const Word* in, std::size_t count, std::size_t first) const;

private:
    struct Tables;

    std::unique_ptr<Tables> tables_;
    Word root_ = 0;
};

struct Complex {
    double x;
    double y;
};

/// The Fourier transform between slots and halves of real polynomials: slot j is the value at
/// exp(i pi 5^j / N) of the polynomial whose coefficient k is x of entry k, and k + N/2 its y.
class Fourier {
public:
    /// For 2^log_slots = N/2 slots. Throws Error as `Transforms`.
    Fourier(Memory& memory, int log_slots);
    ~Fourier();

    /// In place, vectors on the device one after another: slots in bit-reversed order become
    /// coefficients in order, multiplied by the vector's factor / slots.
    void to_coefficients(Complex* data, const std::vector<double>& factors);

    /// The way back, of one vector.
    void to_slots(Complex* data);

private:
    struct Tables;

    int log_slots_;
    std::unique_ptr<Tables> tables_;
};

}  // namespace atlasc::ckks
