#include "ckks/plaintexts/encoder.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <cstring>
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
/// for each run of slots, or computed.
struct Scatter {
    int log_slots;
    const double* numbers;
    const Encoder::Sent* of;
    Complex* out;

    ATLASC_DEVICE void operator()(std::size_t at) const {
        const std::size_t vector = at >> log_slots;
        const std::size_t slot = at - (vector << log_slots);
        const Encoder::Sent& own = of[vector];
        Complex& to = out[(vector << log_slots) +
                          reverse_bits(static_cast<std::uint32_t>(slot), log_slots)];
        if (own.kind == Encoder::Sent::Kind::gather) {
            const auto* gather = reinterpret_cast<const Gathered*>(numbers + own.start);
            const Gathered::Number number = (*gather)(static_cast<std::uint32_t>(slot));
            to = {number.real, number.imaginary};
            return;
        }
        const bool is_complex = own.kind == Encoder::Sent::Kind::complex;
        const std::size_t place = slot / own.run & (own.count - 1);
        const double* number = numbers + own.start + place * (is_complex ? 2 : 1);
        to = {number[0], is_complex ? number[1] : 0.0};
    }
};

constexpr std::size_t words_of_sent = sizeof(Encoder::Sent) / sizeof(double);
constexpr std::size_t least_copied = 16384;  ///< numbers that a thread copies
constexpr std::uint64_t copies_share = 8;    ///< part of the budget that copies may take

/// Numbers that are sent at once, at most.
std::size_t most_sent(const Ring& ring) {
    return Encoder::most_short * words_of_sent + Encoder::batch * 2 * ring.slots();
}

}  // namespace

Encoder::Encoder(const Ring& ring, bool gathers)
    : ring_(ring),
      log_slots_(ring.log_degree() - 1),
      fourier_(ring.memory(), log_slots_),
      data_(as_secret(Array<Complex>(ring.memory(), batch * ring.slots()))),
      staging_(most_sent(ring) * sizeof(double)),
      copies_(ring.memory(), ring.memory().budget() / copies_share, staging_,
              most_sent(ring) * sizeof(double)),
      gathers_(gathers),
      input_(as_secret(Array<double>(ring.memory(), most_sent(ring)))) {
    const Plaintext imaginary = ComplexVector(1, {0.0, 1.0});
    imaginary_ = std::move(plains({&imaginary}, {1.0}, ring_.size_q(), 0)[0]);
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

std::size_t Encoder::send(const std::vector<const Pattern*>& patterns, double scale,
                          std::size_t limbs) {
    const int log_short = patterns.front()->log_short;
    const std::size_t period = ring_.slots() >> log_short;
    std::size_t words = patterns.size() * words_of_sent;
    std::vector<Sent> sent;
    for (const Pattern* pattern : patterns) {
        require_size(ring_.chain(), pattern->largest, scale, limbs);
        const auto* pairs = std::get_if<const ComplexVector*>(&pattern->numbers);
        const auto* plan = std::get_if<const GatherPlan*>(&pattern->numbers);
        const std::size_t numbers = plan != nullptr    ? (*plan)->count
                                    : pairs != nullptr ? (*pairs)->size()
                                                       : std::get<0>(pattern->numbers)->size();
        const std::size_t run = run_of(numbers * pattern->repeats, ring_.slots(), "a plaintext");
        const std::size_t count = std::min(numbers, std::max<std::size_t>(period / run, 1));
        sent.push_back({static_cast<std::uint32_t>(words), static_cast<std::uint32_t>(count),
                        static_cast<std::uint32_t>(run),
                        plan != nullptr    ? Sent::Kind::gather
                        : pairs != nullptr ? Sent::Kind::complex
                                           : Sent::Kind::real});
        words += plan != nullptr ? (*plan)->words() : pairs != nullptr ? 2 * count : count;
    }
    auto* to = static_cast<double*>(staging_.buffer(input_.get()));
    std::memcpy(to, sent.data(), sent.size() * sizeof(Sent));
    const std::size_t grain = std::max<std::size_t>(least_copied * sent.size() / words, 1);
    parallel(sent.size(), grain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t at = begin; at < end; ++at) {
            const std::size_t start = sent[at].start;
            const std::size_t count = sent[at].count;
            const auto& numbers = patterns[at]->numbers;
            if (const auto* slots = std::get_if<const Vector*>(&numbers)) {
                std::copy_n((*slots)->data(), count, to + start);
            } else if (const auto* pairs = std::get_if<const ComplexVector*>(&numbers)) {
                std::memcpy(to + start, (*pairs)->data(), count * sizeof(std::complex<double>));
            } else {
                std::get<const GatherPlan*>(numbers)->write(to + start, input_.get() + start);
            }
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
    return std::move(rounded(1, whole, limbs, 0).front());
}
template Words Encoder::encode(const Vector&, double, std::size_t);

std::vector<Plain> Encoder::plains(const std::vector<const Plaintext*>& values,
                                   const std::vector<double>& scales, std::size_t limbs,
                                   std::size_t special) {
    std::vector<Made> made;
    HeldCopies held;
    const std::vector<Pattern> patterns = patterns_of(values, scales, limbs, made, held);
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
            for (Words& block : rounded(end - first, pattern, limbs, special)) {
                const auto words = std::make_shared<const Words>(std::move(block));
                const std::size_t size =
                    (limbs + special) << (ring_.log_degree() - log_run);
                for (std::size_t start = 0; start < words->size(); start += size) {
                    result[places[next++]] = {words, start, size, log_run};
                }
            }
        }
    }
    return result;
}

std::vector<Words> Encoder::rounded(std::size_t count, const Pattern& pattern, std::size_t limbs,
                                    std::size_t special) {
    const int log_short = pattern.log_short;
    const int left = pattern.log_run - log_short;
    const int log_degree = ring_.log_degree() - log_short;
    const std::size_t degree = std::size_t{1} << log_degree;
    const std::size_t all = limbs + special;
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
