#include "ckks/ring/encoder.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <cstring>
#include <exception>
#include <map>
#include <type_traits>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/files.hpp"
#include "atlasc/base/numbers.hpp"
#include "atlasc/base/threads.hpp"
#include "ckks/ring/kernels.hpp"
#include "kernel.hpp"

namespace atlasc::ckks {
namespace {

/// Slots of some vectors to the bit-reversed order in which the transform takes them, from one number
/// for each run of slots.
struct Scatter {
    int log_slots;
    const double* numbers;
    const Encoder::Sent* of;
    Complex* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t vector = at >> log_slots;
        const std::size_t slot = at - (vector << log_slots);
        const Encoder::Sent& own = of[vector];
        const std::size_t place = slot / own.run & (own.count - 1);
        const double* number = numbers + own.start + place * (own.is_complex != 0 ? 2 : 1);
        Complex& to = out[(vector << log_slots) +
                          reverse_bits(static_cast<std::uint32_t>(slot), log_slots)];
        to.x = number[0];
        to.y = own.is_complex != 0 ? number[1] : 0.0;
    }
};

constexpr std::size_t words_of_sent = sizeof(Encoder::Sent) / sizeof(double);
constexpr std::size_t least_copied = 16384;  ///< numbers that a thread copies

/// Numbers that are sent at once, at most.
std::size_t most_sent(const Ring& ring) {
    return Encoder::most_short * words_of_sent + Encoder::batch * 2 * ring.slots();
}

/// log2 of how often slots repeat, whose numbers follow one another so many times already; 0 where
/// that is less often than is worth it.
template <typename Number>
int log_repeats(const std::vector<Number>& numbers, std::size_t repeats, std::size_t slots) {
    constexpr int least = 3;  // eight numbers are computed at a time
    std::size_t size = numbers.size();
    const auto halves = [&] {
        const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(size / 2);
        return std::equal(numbers.begin(), middle, middle);
    };
    while (size > 1 && halves()) {
        size /= 2;
        repeats *= 2;
    }
    repeats = size == 1 ? slots : repeats;
    int log = 0;
    while (std::size_t{2} << log <= repeats) {
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
      staging_(most_sent(ring) * sizeof(double)),
      input_(as_secret(Array<double>(ring.memory(), most_sent(ring)))) {
    const Plaintext imaginary = ComplexVector(1, {0.0, 1.0});
    imaginary_ = std::move(plains({&imaginary}, {1.0}, ring_.size_q(), false)[0]);
    check();
}

void Encoder::check() {
    const std::vector<Word> coefficients = [this] {
        const Words encoded = encode(ComplexVector(ring_.slots(), {0.0, 1.0}), 1.0, 1);
        ring_.backward(encoded.get(), encoded.get(), 1);
        return downloaded(encoded.get(), ring_.degree());
    }();
    std::vector<Word> expected(ring_.degree(), 0);
    expected[ring_.degree() / 2] = 1;
    std::size_t differing = 0;
    for (std::size_t at = 0; at < expected.size(); ++at) {
        differing += coefficients[at] != expected[at] ? 1 : 0;
    }
    if (differing != 0) {
        throw Error("the Fourier transform of this build is not the expected one",
                    std::to_string(differing) + " of " + std::to_string(expected.size()) +
                        " coefficients differ; " + device_facts(),
                    "build a library as docs/backend-phantom.md says");
    }
}

void require_size(const Chain& chain, double largest, double scale, std::size_t limbs) {
    // No coefficient is larger than the largest slot times the scale.
    const double bits = std::log2(std::max(largest * scale, 1.0)) + 2.0;
    if (!std::isfinite(largest) || bits > chain.log_q(limbs)) {
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

Encoder::Pattern Encoder::pattern_of(const Plaintext& value, Numbers& made) const {
    Pattern pattern{{}, 1, 0, 0, 0.0};
    const auto hold = [&](Numbers numbers) {
        made = std::move(numbers);
        std::visit([&](const auto& held) { pattern.numbers = &held; }, made);
    };
    if (const double* number = std::get_if<double>(&value)) {
        hold(Vector{*number});
    } else if (const Vector* slots = std::get_if<Vector>(&value)) {
        pattern.numbers = slots;
    } else if (const ComplexVector* pairs = std::get_if<ComplexVector>(&value)) {
        pattern.numbers = pairs;
    } else {
        const auto& deferred = std::get<Deferred>(value);
        hold(deferred.make());
        pattern.repeats = deferred.repeats;
    }
    std::visit(
        [&](const auto* numbers) {
            run_of(numbers->size() * pattern.repeats, ring_.slots(), "a plaintext");
            pattern.log_run = log_repeats(*numbers, pattern.repeats, ring_.slots());
            pattern.largest = largest_of(*numbers);
        },
        pattern.numbers);
    pattern.log_short = std::min(pattern.log_run, most_log_run(ring_.log_degree()));
    return pattern;
}

std::vector<Encoder::Pattern> Encoder::patterns_of(const std::vector<const Plaintext*>& values,
                                                   std::vector<Numbers>& made) const {
    std::vector<Pattern> patterns(values.size());
    made.resize(values.size());
    std::mutex mutex;
    std::exception_ptr failed;
    parallel(values.size(), 1, [&](std::size_t begin, std::size_t end) {
        try {
            for (std::size_t at = begin; at < end; ++at) {
                patterns[at] = pattern_of(*values[at], made[at]);
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failed = std::current_exception();
        }
    });
    if (failed) {
        std::rethrow_exception(failed);
    }
    return patterns;
}

std::size_t Encoder::send(const std::vector<const Pattern*>& patterns, double scale,
                          std::size_t limbs) {
    const int log_short = patterns.front()->log_short;
    const std::size_t period = ring_.slots() >> log_short;
    std::size_t words = patterns.size() * words_of_sent;
    std::vector<Sent> sent;
    std::vector<const double*> from;
    const auto put = [&](const Pattern& pattern, const auto& numbers, std::uint32_t is_complex) {
        const std::size_t run =
            run_of(numbers.size() * pattern.repeats, ring_.slots(), "a plaintext");
        const std::size_t count = std::min(numbers.size(), std::max<std::size_t>(period / run, 1));
        sent.push_back({static_cast<std::uint32_t>(words), static_cast<std::uint32_t>(count),
                        static_cast<std::uint32_t>(run), is_complex});
        from.push_back(reinterpret_cast<const double*>(numbers.data()));
        words += sent.back().words();
    };
    for (const Pattern* pattern : patterns) {
        require_size(ring_.chain(), pattern->largest, scale, limbs);
        if (const auto* slots = std::get_if<const Vector*>(&pattern->numbers)) {
            put(*pattern, **slots, 0);
        } else {
            put(*pattern, *std::get<const ComplexVector*>(pattern->numbers), 1);
        }
    }
    auto* to = static_cast<double*>(staging_.buffer(input_.get()));
    std::memcpy(to, sent.data(), sent.size() * sizeof(Sent));
    const std::size_t grain = std::max<std::size_t>(least_copied * sent.size() / words, 1);
    parallel(sent.size(), grain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin; at < end; ++at) {
            std::copy_n(from[at], sent[at].words(), to + sent[at].start);
        }
    });
    staging_.upload(input_.get(), words * sizeof(double));
    const int log_slots = log_slots_ - log_short;
    launch(sent.size() << log_slots,
           Scatter{log_slots, input_.get(), reinterpret_cast<const Sent*>(input_.get()),
                   data_.get()},
           "slots of plaintexts");
    fourier_.to_coefficients(data_.get(), sent.size(), scale, log_short);
    return words * sizeof(double);
}

template <typename Number>
Words Encoder::encode(const std::vector<Number>& slots, double scale, std::size_t limbs) {
    const Pattern whole{&slots, 1, 0, 0, largest_of(slots)};
    const std::lock_guard<std::mutex> alone(mutex_);
    staging_.wipe_last(send({&whole}, scale, limbs));  // a client's slots
    return std::move(rounded(1, whole, limbs, false).front());
}
template Words Encoder::encode(const Vector&, double, std::size_t);

std::vector<Plain> Encoder::plains(const std::vector<const Plaintext*>& values,
                                   const std::vector<double>& scales, std::size_t limbs,
                                   bool extended) {
    std::vector<Numbers> made;
    const std::vector<Pattern> patterns = patterns_of(values, made);
    std::map<std::pair<int, double>, std::vector<std::size_t>> alike;
    for (std::size_t at = 0; at < values.size(); ++at) {
        alike[{patterns[at].log_run, scales[at]}].push_back(at);
    }
    std::vector<Plain> result(values.size());
    for (const auto& [kind, places] : alike) {
        const int log_run = kind.first;
        const double scale = kind.second;
        const Pattern& pattern = patterns[places[0]];
        const std::size_t most = pattern.log_short == 0
                                     ? batch
                                     : std::min(batch << pattern.log_short, most_short);
        for (std::size_t first = 0; first < places.size(); first += most) {
            const std::size_t end = std::min(first + most, places.size());
            const std::lock_guard<std::mutex> alone(mutex_);
            std::vector<const Pattern*> some;
            for (std::size_t at = first; at < end; ++at) {
                some.push_back(&patterns[places[at]]);
            }
            send(some, scale, limbs);
            std::size_t next = first;
            for (Words& block : rounded(end - first, pattern, limbs, extended)) {
                const auto words = std::make_shared<const Words>(std::move(block));
                const std::size_t size =
                    (limbs + (extended ? ring_.size_p() : 0)) << (ring_.log_degree() - log_run);
                for (std::size_t start = 0; start < words->size(); start += size) {
                    result[places[next++]] = {words, start, size, log_run};
                }
            }
        }
    }
    return result;
}

std::vector<Words> Encoder::rounded(std::size_t count, const Pattern& pattern, std::size_t limbs,
                                    bool extended) {
    const int log_short = pattern.log_short;
    const int left = pattern.log_run - log_short;
    const int log_degree = ring_.log_degree() - log_short;
    const std::size_t degree = std::size_t{1} << log_degree;
    const std::size_t all = limbs + (extended ? ring_.size_p() : 0);
    const std::size_t rest = (std::size_t{1} << left) - 1;
    // Long ones are let go one by one, short ones together.
    const std::size_t most = together() << log_short;
    std::vector<Words> blocks;
    for (std::size_t first = 0; first < count; first += most) {
        const std::size_t some = std::min(most, count - first);
        const std::size_t copies = log_short == 0 ? 1 : some;
        Rounds<batch> kernel{{}, copies << log_degree};
        Limbs values{all, 0, limbs, log_short, copies};
        for (std::size_t at = first; at < first + some; at += copies) {
            Word* words = blocks.emplace_back(ring_.memory(), copies * all * degree).get();
            kernel.of[values.polynomials] = {log_degree, limbs, all, ring_.size_q(),
                                             ring_.primes(), rest,
                                             data_.get() + at * (degree / 2), words};
            values.add(words, words);
        }
        launch(some << log_degree, kernel, "coefficients of plaintexts");
        ring_.forward(values);
    }
    for (Words& block : blocks) {
        if (left != 0) {
            const Words whole = std::exchange(block, Words(ring_.memory(), block.size() >> left));
            launch(block.size(), Compress{left, whole.get(), block.get()}, "values of plaintexts");
        }
    }
    return blocks;
}

}  // namespace atlasc::ckks
