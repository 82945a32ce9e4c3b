#include "ckks/ring/encoder.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "atlasc/base/error.hpp"
#include "atlasc/base/files.hpp"
#include "atlasc/base/numbers.hpp"
#include "ckks/ring/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Slots of some vectors to the bit-reversed order in which the transform takes them, from one number
/// for each run of slots.
struct Scatter {
    int log_slots;
    const double* numbers;
    Encoder::Sent of[Encoder::batch];
    Complex* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t vector = at >> log_slots;
        const std::size_t slot = at - (vector << log_slots);
        const Encoder::Sent& own = of[vector];
        const double* number = numbers + own.start + slot / own.run * (own.is_complex ? 2 : 1);
        Complex& to = out[(vector << log_slots) +
                          reverse_bits(static_cast<std::uint32_t>(slot), log_slots)];
        to.x = number[0];
        to.y = own.is_complex ? number[1] : 0.0;
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
      data_(as_secret(Array<Complex>(ring.memory(), batch * ring.slots()))),
      staging_(batch * 2 * ring.slots() * sizeof(double)),
      input_(as_secret(Array<double>(ring.memory(), batch * 2 * ring.slots()))) {
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
    const Plaintext imaginary = ComplexVector(1, {0.0, 1.0});
    imaginary_ = std::move(plains({&imaginary}, {1.0}, ring_.size_q(), false)[0]);
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

namespace {

double size_of(double slot) { return std::fabs(slot); }
double size_of(const std::complex<double>& slot) {
    return std::fabs(slot.real()) + std::fabs(slot.imag());
}

/// The largest slot; none where one is no number.
template <typename Number>
double largest_of(const std::vector<Number>& slots) {
    double largest = 0.0;
    for (const Number& slot : slots) {
        const double size = size_of(slot);
        largest = std::isnan(size) ? size : std::max(largest, size);
        if (std::isnan(largest)) {
            break;
        }
    }
    return largest;
}

}  // namespace

template <typename Number>
void Encoder::put(const std::vector<Number>& numbers, double scale, std::size_t limbs) {
    constexpr bool is_complex = !std::is_same_v<Number, double>;
    const std::size_t run = run_of(numbers.size(), ring_.slots(), "a plaintext");
    require_size(largest_of(numbers), scale, limbs);
    sent_.push_back({numbers_.size(), run, is_complex});
    const auto* first = reinterpret_cast<const double*>(numbers.data());
    numbers_.insert(numbers_.end(), first, first + numbers.size() * (is_complex ? 2 : 1));
}

void Encoder::send(const std::vector<double>& scales) {
    Scatter kernel{log_slots_, input_.get(), {}, data_.get()};
    std::copy(sent_.begin(), sent_.end(), kernel.of);
    staging_.upload(input_.get(), numbers_.data(), numbers_.size() * sizeof(double));
    launch(sent_.size() * ring_.slots(), kernel, "slots of plaintexts");
    fourier_.to_coefficients(data_.get(), scales);
    wipe(numbers_.data(), numbers_.size() * sizeof(double));  // a client's slots
}

template <typename Number>
Words Encoder::encode(const std::vector<Number>& slots, double scale, std::size_t limbs) {
    const std::lock_guard<std::mutex> alone(mutex_);
    start();
    put(slots, scale, limbs);
    send({scale});
    return std::move(rounded({0}, limbs, false).front());
}
template Words Encoder::encode(const Vector&, double, std::size_t);

std::vector<Plain> Encoder::plains(const std::vector<const Plaintext*>& values,
                                   const std::vector<double>& scales, std::size_t limbs,
                                   bool extended) {
    std::vector<Plain> result;
    for (std::size_t first = 0; first < values.size(); first += batch) {
        const std::size_t end = std::min(first + batch, values.size());
        std::vector<int> runs;
        const std::lock_guard<std::mutex> alone(mutex_);
        start();
        for (std::size_t at = first; at < end; ++at) {
            const auto add = [&](const auto& slots) {
                put(slots, scales[at], limbs);
                runs.push_back(log_repeats(slots, ring_.slots()));
            };
            if (const double* number = std::get_if<double>(values[at])) {
                add(Vector{*number});
            } else if (const Vector* slots = std::get_if<Vector>(values[at])) {
                add(*slots);
            } else {
                add(std::get<ComplexVector>(*values[at]));
            }
        }
        const auto scale = scales.begin();
        send({scale + static_cast<std::ptrdiff_t>(first), scale + static_cast<std::ptrdiff_t>(end)});
        std::vector<Words> words = rounded(runs, limbs, extended);
        for (std::size_t at = 0; at < words.size(); ++at) {
            if (runs[at] != 0) {
                const Words whole = std::move(words[at]);
                words[at] = Words(ring_.memory(), whole.size() >> runs[at]);
                launch(words[at].size(), Compress{runs[at], whole.get(), words[at].get()},
                       "values of a plaintext");
            }
            result.push_back({std::move(words[at]), runs[at]});
        }
    }
    return result;
}

std::vector<Words> Encoder::rounded(const std::vector<int>& log_runs, std::size_t limbs,
                                    bool extended) {
    const std::size_t all = limbs + (extended ? ring_.size_p() : 0);
    std::vector<Words> polynomials;
    for (std::size_t first = 0; first < log_runs.size(); first += together()) {
        const std::size_t end = std::min(first + together(), log_runs.size());
        Rounds<batch> kernel{};
        Limbs values{all, 0, limbs};
        for (std::size_t at = first; at < end; ++at) {
            polynomials.push_back(ring_.polynomial(all));
            Word* out = polynomials.back().get();
            kernel.of[at - first] = {ring_.log_degree(), limbs, all, ring_.size_q(),
                                     ring_.primes(), (std::size_t{1} << log_runs[at]) - 1,
                                     data_.get() + at * ring_.slots(), out};
            values.add(out, out);
        }
        launch((end - first) * ring_.degree(), kernel, "coefficients of plaintexts");
        ring_.forward(values);
    }
    return polynomials;
}

ComplexVector Encoder::decode(const Words& polynomial, double scale) {
    const std::size_t limbs = std::min(polynomial.size() / ring_.degree(), read_limbs);
    const std::vector<Prime>& q = ring_.chain().q;
    const std::lock_guard<std::mutex> alone(mutex_);
    const Words coefficients = as_secret(ring_.polynomial(limbs));
    ring_.backward(coefficients.get(), polynomial.get(), limbs);
    const Word inverted = limbs == 2 ? inverse(reduce(q[0].value, q[1]), q[1]) : 0;
    launch(ring_.degree(),
           Compose{ring_.log_degree(), limbs == 2, ring_.primes(), inverted, coefficients.get(),
                   1.0 / scale, data_.get()},
           "coefficients of a decryption");
    fourier_.to_slots(data_.get());
    launch(ring_.slots(), Gather{log_slots_, data_.get(), input_.get()},
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
