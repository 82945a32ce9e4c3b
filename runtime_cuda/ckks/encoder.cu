#include "ckks/encoder.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "atlasc/error.hpp"
#include "atlasc/numbers.hpp"
#include "ckks/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Slots to the bit-reversed order in which the transform takes them, from one number for each
/// run of slots.
template <bool is_complex>
struct Scatter {
    int log_slots;
    std::size_t run;
    const double* slots;
    Complex* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::uint32_t place = reverse_bits(static_cast<std::uint32_t>(at), log_slots);
        const std::size_t number = at / run;
        out[place].x = is_complex ? slots[2 * number] : slots[number];
        out[place].y = is_complex ? slots[2 * number + 1] : 0.0;
    }
};

struct Gather {
    int log_slots;
    const Complex* in;
    double* slots;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::uint32_t place = reverse_bits(static_cast<std::uint32_t>(at), log_slots);
        slots[2 * at] = in[place].x;
        slots[2 * at + 1] = in[place].y;
    }
};

/// The centred number with residues modulo one prime or two, times a factor.
struct Compose {
    int log_degree;
    bool two;
    const Prime* primes;
    Word inverse;  ///< q_0^-1 modulo q_1
    const Word* in;
    double factor;
    Complex* out;

    ATLASC_DEVICE static double centred(Word x, const Prime& q) {
        return x > q.value / 2 ? -static_cast<double>(q.value - x) : static_cast<double>(x);
    }

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t degree = std::size_t{1} << log_degree;
        const Word low = in[at];
        double number = centred(low, primes[0]);
        if (two) {
            const Word same = lift(low, primes[0], primes[1]);
            const Word rest = multiply(subtract(in[degree + at], same, primes[1]), inverse,
                                       primes[1]);
            number += static_cast<double>(primes[0].value) * centred(rest, primes[1]);
        }
        double* parts = at < degree / 2 ? &out[at].x : &out[at - degree / 2].y;
        *parts = number * factor;
    }
};

/// log2 of how often slots repeat; 0 where that is less often than is worth it.
template <typename Number>
int log_repeats(const std::vector<Number>& numbers, std::size_t slots) {
    constexpr int least = 3;  // eight numbers are computed at a time
    std::size_t period = numbers.size() == slots || numbers.size() == 1 ? numbers.size() : 0;
    const auto halves = [&] {
        const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(period / 2);
        return std::equal(numbers.begin(), middle, middle);
    };
    while (period > 1 && halves()) {
        period /= 2;
    }
    int log = 0;
    while (period != 0 && (period << (log + 1)) <= slots) {
        ++log;
    }
    return log < least ? 0 : log;
}

}  // namespace

Encoder::Encoder(const Ring& ring)
    : ring_(ring),
      log_slots_(ring.log_degree() - 1),
      fourier_(ring.memory(), log_slots_),
      staging_(2 * ring.slots() * sizeof(double)),
      input_(ring.memory(), 2 * ring.slots()) {
    make_imaginary();
}

void Encoder::make_imaginary() {
    const std::vector<Word> coefficients = [this] {
        const Words encoded = encode(ComplexVector(ring_.slots(), {0.0, 1.0}), 1.0, 1);
        ring_.backward(encoded.get(), encoded.get(), 1);
        return downloaded(encoded.get(), ring_.degree());
    }();
    std::vector<Word> expected(ring_.degree(), 0);
    expected[ring_.degree() / 2] = 1;
    if (coefficients != expected) {
        throw Error("the Fourier transform of this build is not the expected one",
                    "a library was built for other GPUs, or is another version",
                    "build it as docs/backend-phantom.md says");
    }
    imaginary_ = plain(ComplexVector(1, {0.0, 1.0}), 1.0, ring_.size_q(), false);
}

void Encoder::require_size(double largest, double scale, std::size_t limbs) const {
    // No coefficient is larger than the largest slot times the scale.
    const double bits = std::log2(std::max(largest * scale, 1.0)) + 2.0;
    if (!std::isfinite(largest) || bits > ring_.chain().log_q(limbs)) {
        throw Error("a plaintext holds a number that cannot be encoded",
                    "the largest is " + std::to_string(largest) + ", at level " +
                        std::to_string(limbs - 1));
    }
}

template <typename Number>
void Encoder::scatter(const std::vector<Number>& numbers) {
    constexpr bool is_complex = !std::is_same_v<Number, double>;
    staging_.upload(input_.get(), numbers.data(), numbers.size() * sizeof(Number));
    launch(ring_.slots(),
           Scatter<is_complex>{log_slots_, ring_.slots() / numbers.size(), input_.get(),
                               fourier_.data()},
           "slots of a plaintext");
}

void Encoder::require_sizes(const Vector& slots, double scale, std::size_t limbs) const {
    double largest = 0.0;
    for (const double slot : slots) {
        largest = std::isnan(slot) ? slot : std::max(largest, std::fabs(slot));
        if (std::isnan(largest)) {
            break;
        }
    }
    require_size(largest, scale, limbs);
}

void Encoder::require_sizes(const ComplexVector& slots, double scale, std::size_t limbs) const {
    double largest = 0.0;
    for (const std::complex<double>& slot : slots) {
        const double size = std::fabs(slot.real()) + std::fabs(slot.imag());
        largest = std::isnan(size) ? size : std::max(largest, size);
        if (std::isnan(largest)) {
            break;
        }
    }
    require_size(largest, scale, limbs);
}

Words Encoder::encode(const Vector& slots, double scale, std::size_t limbs) {
    require_sizes(slots, scale, limbs);
    scatter(slots);
    return transformed(scale, limbs, false, 0);
}

Words Encoder::encode(const ComplexVector& slots, double scale, std::size_t limbs) {
    require_sizes(slots, scale, limbs);
    scatter(slots);
    return transformed(scale, limbs, false, 0);
}

template <typename Slots>
Plain Encoder::plain(const Slots& slots, double scale, std::size_t limbs, bool extended) {
    require_sizes(slots, scale, limbs);
    scatter(slots);
    const int log_run = log_repeats(slots, ring_.slots());
    Words whole = transformed(scale, limbs, extended, log_run);
    if (log_run == 0) {
        return {std::move(whole), 0};
    }
    Words words(ring_.memory(), whole.size() >> log_run);
    launch(words.size(), Compress{log_run, whole.get(), words.get()}, "values of a plaintext");
    return {std::move(words), log_run};
}

template Plain Encoder::plain(const Vector&, double, std::size_t, bool);
template Plain Encoder::plain(const ComplexVector&, double, std::size_t, bool);

Words Encoder::transformed(double scale, std::size_t limbs, bool extended, int log_run) {
    fourier_.to_coefficients(scale);
    const std::size_t special = extended ? ring_.size_p() : 0;
    Words polynomial = ring_.polynomial(limbs + special);
    launch(ring_.degree(),
           Round{ring_.log_degree(), limbs, limbs + special, ring_.size_q(), ring_.primes(),
                 (std::size_t{1} << log_run) - 1, fourier_.data(), polynomial.get()},
           "coefficients of a plaintext");
    ring_.forward(polynomial.get(), limbs);
    if (extended) {
        ring_.forward(polynomial.get() + limbs * ring_.degree(), special, ring_.size_q());
    }
    return polynomial;
}

ComplexVector Encoder::decode(const Words& polynomial, double scale) {
    const std::size_t limbs = std::min<std::size_t>(polynomial.size() / ring_.degree(), 2);
    const std::vector<Prime>& q = ring_.chain().q;
    const Words coefficients = ring_.polynomial(limbs);
    ring_.backward(coefficients.get(), polynomial.get(), limbs);
    const Word inverted = limbs == 2 ? inverse(reduce(q[0].value, q[1]), q[1]) : 0;
    launch(ring_.degree(),
           Compose{ring_.log_degree(), limbs == 2, ring_.primes(), inverted, coefficients.get(),
                   1.0 / scale, fourier_.data()},
           "coefficients of a decryption");
    fourier_.to_slots();
    launch(ring_.slots(), Gather{log_slots_, fourier_.data(), input_.get()},
           "slots of a decryption");
    ComplexVector slots(ring_.slots());
    download(slots.data(), input_.get(), slots.size() * sizeof(slots[0]));

    // Coefficients of garbage are uniform: their mean square is q^2/12. Those of slots are, by
    // Parseval, a mean square of sum |z|^2 / (slots * N).
    double square = 0.0;
    for (const std::complex<double>& slot : slots) {
        square += std::norm(slot);
    }
    const double mean = square / static_cast<double>(ring_.slots()) /
                        static_cast<double>(ring_.degree());
    const double largest = std::exp2(ring_.chain().log_q(limbs)) / scale;
    if (!(std::sqrt(mean) < largest / 8)) {
        throw Error("a ciphertext does not decrypt to anything",
                    "its slots are as large as those of a random one",
                    "use the key that the query was encrypted with; if it was that one, a "
                    "polynomial was evaluated outside its range: calibrate on more inputs");
    }
    return slots;
}

}  // namespace atlasc::ckks
