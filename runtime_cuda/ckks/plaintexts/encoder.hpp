// Slots to polynomials and back.
#pragma once

#include <complex>
#include <map>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "atlasc/engine.hpp"
#include "ckks/plaintexts/copies.hpp"
#include "ckks/ring/polynomials.hpp"

namespace atlasc::ckks {

/// An encoded plaintext: values of its polynomial modulo some primes, [limb][N / 2^log_run].
///
/// Slots that repeat after L of them are those of a polynomial in X^(N/2L), whose values repeat N/2L
/// times, one after another.
struct Plain {
    std::shared_ptr<const Words> words;  ///< of one or of several: short ones lie together
    std::size_t start;
    std::size_t size;  ///< words
    int log_run;

    PlainValues values() const { return {words->get() + start, log_run}; }
    std::size_t bytes() const { return size * sizeof(Word); }
};

/// The largest slot; none where one is no number.
double largest_of(const Vector& slots);
double largest_of(const ComplexVector& slots);

/// Whether slots fit into the first primes of a chain, and are numbers.
bool fits(const Chain& chain, double largest, double scale, std::size_t limbs);

/// Refuses slots that do not (Error).
void require_size(const Chain& chain, double largest, double scale, std::size_t limbs);

/// Slot j is the value of the polynomial, over the scale, at exp(i pi 5^j / N). One thread at a time
/// encodes or decodes, in buffers that all of them share.
class Encoder {
public:
    /// `gathers`: whether the device computes the numbers of plaintexts that have a plan. Throws
    /// Error, also where the Fourier transform of a library is not the expected one.
    explicit Encoder(const Ring& ring, bool gathers = gathers_numbers());
    Encoder(const Encoder&) = delete;
    Encoder& operator=(const Encoder&) = delete;

    /// Values of the polynomial of a vector, modulo the first `limbs` primes of Q. The vector may
    /// have one number for a run of slots, and change afterwards. Throws Error: a number is infinite,
    /// none, or too large.
    template <typename Number>
    Words encode(const std::vector<Number>& slots, double scale, std::size_t limbs);

    /// Plaintexts, each at a scale, with one value for each run; modulo the first `special`
    /// special primes too. They share transforms, which are short where slots repeat often.
    std::vector<Plain> plains(const std::vector<const Plaintext*>& values,
                              const std::vector<double>& scales, std::size_t limbs,
                              std::size_t special);

    /// Lets go of copies of a program's arrays: memory is short. Any thread may ask, at any time.
    void clear() { copies_.clear(); }

    /// Slots of values modulo the first prime or the first two of Q; as `polynomial` has.
    /// Throws Error where the coefficients are as large as those of garbage.
    ComplexVector decode(const Words& polynomial, double scale);

    /// X^(N/2), which is i in every slot, modulo all primes of Q.
    PlainValues imaginary() const { return imaginary_.values(); }

    static constexpr std::size_t batch = 8;  ///< vectors that are encoded together; more short ones
    static constexpr std::size_t most_short = 4096;
    static_assert(batch <= most_together, "a device transforms them together");
    static constexpr std::size_t read_limbs = 2;  ///< primes whose residues are decoded, at most

    /// What is sent of a vector, in words of a number each.
    struct Sent {
        enum class Kind : std::uint32_t { real, complex, gather };

        std::uint32_t start;  ///< of its numbers, or of a `Gathered`
        std::uint32_t count;  ///< a power of two; they follow one another until every slot has one
        std::uint32_t run;    ///< slots that one stands for
        Kind kind;
    };

    /// Numbers that follow one another `repeats` times. Their polynomial's values have runs of
    /// 2^log_run; it is transformed as one in X^(2^log_short).
    struct Pattern {
        std::variant<const Vector*, const ComplexVector*, const GatherPlan*> numbers;
        std::size_t repeats;
        int log_run;
        int log_short;
        double largest;  ///< or more; none where one is no number
    };

private:
    /// What is made of a plaintext: its numbers, or how the device computes them.
    struct Made {
        Numbers numbers;
        std::optional<GatherPlan> plan;
    };
    /// By what they are copies of; null for what has none.
    using HeldCopies = std::map<const void*, Copies::Held>;

    /// Of plaintexts; numbers that are not there yet are made, on all processors. Plans lead to copies
    /// that are held.
    std::vector<Pattern> patterns_of(const std::vector<const Plaintext*>& values,
                                     const std::vector<double>& scales, std::size_t limbs,
                                     std::vector<Made>& made, HeldCopies& held);
    Pattern pattern_of(const Plaintext& value, Made& made) const;
    /// That of a plaintext which has one, if it takes fewer words than the numbers.
    std::optional<GatherPlan> plan_for(const Plaintext& value) const;
    /// Leads a plan to copies. Nothing where the device lacks one, or where numbers as large as these
    /// may be would not fit.
    std::optional<Pattern> gathered(const Plaintext& value, GatherPlan& plan, double scale,
                                    std::size_t limbs, HeldCopies& held);
    /// Sends one period of each vector to the device, and makes coefficients of them; refuses what
    /// `require_size` refuses. The patterns have one period. Returns the bytes that it sent.
    std::size_t send(const std::vector<const Pattern*>& patterns, double scale, std::size_t limbs);
    /// Values of the coefficients of a batch, whose patterns are like this one: of each long vector,
    /// or of some short ones that follow one another.
    std::vector<Words> rounded(std::size_t count, const Pattern& pattern, std::size_t limbs,
                               std::size_t special);
    /// Throws Error: the Fourier transform is not the expected one.
    void check();

    const Ring& ring_;
    std::mutex mutex_;
    int log_slots_;
    Fourier fourier_;
    Array<Complex> data_;  ///< slots or coefficients of a batch
    Staging staging_;
    Copies copies_;
    bool gathers_;
    Array<double> input_;  ///< of all vectors, behind what says where each one's are
    Plain imaginary_;
};

}  // namespace atlasc::ckks
