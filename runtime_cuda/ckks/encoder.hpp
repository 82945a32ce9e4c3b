// Slots to polynomials and back.
#pragma once

#include <complex>
#include <vector>

#include "atlasc/engine.hpp"
#include "ckks/ring.hpp"

namespace atlasc::ckks {

/// Slot j is the value of the polynomial, over the scale, at exp(i pi 5^j / N).
class Encoder {
public:
    /// Throws Error, also where the Fourier transform of a library is not the expected one.
    explicit Encoder(const Ring& ring);
    Encoder(const Encoder&) = delete;
    Encoder& operator=(const Encoder&) = delete;

    /// Values of the polynomial of a vector, modulo the first `limbs` primes of Q. The vector may
    /// have one number for a run of slots, and change afterwards. Throws Error: a number is infinite,
    /// none, or too large.
    Words encode(const Vector& slots, double scale, std::size_t limbs);
    Words encode(const ComplexVector& slots, double scale, std::size_t limbs);

    /// Slots of values modulo the first prime or the first two of Q; as `polynomial` has.
    /// Throws Error where the coefficients are as large as those of garbage.
    ComplexVector decode(const Words& polynomial, double scale);

    /// Refuses what does not fit into `limbs` primes, or is no number (Error).
    void require_size(double largest, double scale, std::size_t limbs) const;

    /// X^(N/2), which is i in every slot, modulo all primes of Q.
    const Word* imaginary() const { return imaginary_.get(); }

private:
    /// Sends numbers to the device, into the slots that they stand for.
    template <typename Number>
    void scatter(const std::vector<Number>& numbers);
    Words transformed(double scale, std::size_t limbs);
    void make_imaginary();

    const Ring& ring_;
    int log_slots_;
    Fourier fourier_;
    Staging staging_;
    Array<double> input_;
    Words imaginary_;
};

}  // namespace atlasc::ckks
