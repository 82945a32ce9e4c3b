// Slots to polynomials and back.
#pragma once

#include <complex>
#include <vector>

#include "atlasc/engine.hpp"
#include "ckks/polynomials.hpp"

namespace atlasc::ckks {

/// An encoded plaintext: values of its polynomial modulo some primes, [limb][N / 2^log_run].
///
/// Slots that repeat after L of them are those of a polynomial in X^(N/2L), whose values repeat N/2L
/// times, one after another.
struct Plain {
    Words words;
    int log_run;

    PlainValues values() const { return {words.get(), log_run}; }
};

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

    /// The same with one value for each run, and with `extended` modulo all special primes too.
    template <typename Slots>
    Plain plain(const Slots& slots, double scale, std::size_t limbs, bool extended);

    /// Slots of values modulo the first prime or the first two of Q; as `polynomial` has.
    /// Throws Error where the coefficients are as large as those of garbage.
    ComplexVector decode(const Words& polynomial, double scale);

    /// Refuses what does not fit into `limbs` primes, or is no number (Error).
    void require_size(double largest, double scale, std::size_t limbs) const;

    /// X^(N/2), which is i in every slot, modulo all primes of Q.
    PlainValues imaginary() const { return imaginary_.values(); }

private:
    /// Sends numbers to the device, into the slots that they stand for.
    template <typename Number>
    void scatter(const std::vector<Number>& numbers);
    /// Refuses as `require_size` does, for the largest of some slots.
    void require_sizes(const Vector& slots, double scale, std::size_t limbs) const;
    void require_sizes(const ComplexVector& slots, double scale, std::size_t limbs) const;
    /// The polynomial of the slots that were sent, in X^(2^log_run).
    Words transformed(double scale, std::size_t limbs, bool extended, int log_run);
    void make_imaginary();

    const Ring& ring_;
    int log_slots_;
    Fourier fourier_;
    Staging staging_;
    Array<double> input_;
    Plain imaginary_;
};

}  // namespace atlasc::ckks
