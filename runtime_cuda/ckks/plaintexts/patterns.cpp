// What an encoder makes of plaintexts: numbers, or how the device computes them.
#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/base/threads.hpp"
#include "ckks/plaintexts/encoder.hpp"

namespace atlasc::ckks {

bool fits(const Chain& chain, double largest, double scale, std::size_t limbs) {
    // No coefficient is larger than the largest slot times the scale.
    const double bits = std::log2(std::max(largest * scale, 1.0)) + 2.0;
    return std::isfinite(largest) && bits <= chain.log_q(limbs);
}

void require_size(const Chain& chain, double largest, double scale, std::size_t limbs) {
    if (!fits(chain, largest, scale, limbs)) {
        throw Error("a plaintext holds a number that cannot be encoded",
                    "the largest is " + std::to_string(largest) + ", at level " +
                        std::to_string(limbs - 1));
    }
}

namespace {

/// log2 of how often slots repeat, whose numbers follow one another so many times; 0 where they do so
/// less often than is worth it.
int log_repeats(std::size_t numbers, std::size_t repeats, std::size_t slots) {
    constexpr int least = 3;  // eight numbers are computed at a time
    repeats = numbers == 1 ? slots : repeats;
    int log = 0;
    while (std::size_t{2} << log <= repeats) {
        ++log;
    }
    return log < least ? 0 : log;
}

/// The same of numbers that may repeat themselves.
template <typename Number>
int log_repeats(const std::vector<Number>& numbers, std::size_t repeats, std::size_t slots) {
    std::size_t size = numbers.size();
    const auto halves = [&] {
        const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(size / 2);
        return std::equal(numbers.begin(), middle, middle);
    };
    while (size > 1 && halves()) {
        size /= 2;
        repeats *= 2;
    }
    return log_repeats(size, repeats, slots);
}

double size_of(double slot) { return std::fabs(slot); }
double size_of(const std::complex<double>& slot) {
    return std::fabs(slot.real()) + std::fabs(slot.imag());
}

template <typename Number>
double largest_among(const std::vector<Number>& slots) {
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

/// work(0), ..., work(count - 1) on all processors; throws what one of them threw.
template <typename Work>
void each_of(std::size_t count, const Work& work) {
    std::mutex mutex;
    std::exception_ptr failed;
    parallel(count, 1, [&](std::size_t begin, std::size_t end) {
        try {
            for (std::size_t at = begin; at < end; ++at) {
                work(at);
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failed = std::current_exception();
        }
    });
    if (failed) {
        std::rethrow_exception(failed);
    }
}

/// No number of a plan is larger, where no element is larger than those of its copy.
double largest_of(const GatherPlan& plan, const std::vector<const Copies::Copy*>& copies) {
    double sum = 0.0;
    auto copy = copies.begin();
    for (const Gathered::Term& term : plan.terms) {
        double product = std::fabs(term.factor.real) + std::fabs(term.factor.imaginary);
        for (std::uint32_t at = 0; at < term.count; ++at, ++copy) {
            product *= *copy == nullptr ? 1.0 : (*copy)->largest;
        }
        sum += product;
    }
    return sum;
}

}  // namespace

double largest_of(const Vector& slots) { return largest_among(slots); }
double largest_of(const ComplexVector& slots) { return largest_among(slots); }

Encoder::Pattern Encoder::pattern_of(const Plaintext& value, Made& made) const {
    Pattern pattern{{}, 1, 0, 0, 0.0};
    const auto hold = [&](Numbers numbers) {
        made.numbers = std::move(numbers);
        std::visit([&](const auto& held) { pattern.numbers = &held; }, made.numbers);
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
    const auto measure = [&](const auto& numbers) {
        run_of(numbers.size() * pattern.repeats, ring_.slots(), "a plaintext");
        pattern.log_run = log_repeats(numbers, pattern.repeats, ring_.slots());
        pattern.largest = largest_of(numbers);
    };
    if (const auto* slots = std::get_if<const Vector*>(&pattern.numbers)) {
        measure(**slots);
    } else {
        measure(*std::get<const ComplexVector*>(pattern.numbers));
    }
    pattern.log_short = std::min(pattern.log_run, most_log_run(ring_.log_degree()));
    return pattern;
}

std::optional<GatherPlan> Encoder::plan_for(const Plaintext& value) const {
    const auto* deferred = std::get_if<Deferred>(&value);
    // What has an identity is made once, and kept. Numbers that repeat are few, and those that the
    // host makes it can look at: they may repeat more often than they say.
    if (!gathers_ || deferred == nullptr || !deferred->plan || deferred->identity != 0 ||
        log_repeats(ring_.slots(), deferred->repeats, ring_.slots()) != 0) {
        return std::nullopt;
    }
    constexpr std::size_t in_cache = 4096;  // elements, which the host finds at once
    GatherPlan plan = deferred->plan();
    const std::size_t numbers = plan.count * (plan.is_complex ? 2 : 1);
    const bool large = std::any_of(
        plan.elements.begin(), plan.elements.end(), [](const Elements& elements) {
            return elements.numbers != nullptr && elements.numbers->size() > in_cache;
        });
    if (plan.roots != nullptr || plan.words() > numbers || !large) {
        return std::nullopt;
    }
    return plan;
}

std::optional<Encoder::Pattern> Encoder::gathered(const Plaintext& value, GatherPlan& plan,
                                                  double scale, std::size_t limbs,
                                                  HeldCopies& held) {
    const auto copy_of = [&](const void* key, const auto& array) {
        const auto [known, fresh] = held.try_emplace(key);
        if (fresh) {
            known->second = copies_.of(array);
        }
        return known->second.get();
    };
    std::vector<const Copies::Copy*> copies;
    for (std::size_t at = 0; at < plan.lookups.size(); ++at) {
        Gathered::Lookup& lookup = plan.lookups[at];
        copies.push_back(nullptr);
        if (lookup.kind != Gathered::Kind::one) {
            const Copies::Copy* copy = copy_of(plan.elements[at].numbers, plan.elements[at]);
            if (copy == nullptr) {
                return std::nullopt;
            }
            lookup.elements = copy->bytes.get();
            lookup.kind = copy->floats ? Gathered::Kind::floats : Gathered::Kind::doubles;
            copies.back() = copy;
        }
    }
    const double largest = largest_of(plan, copies);
    if (!fits(ring_.chain(), largest, scale, limbs)) {
        return std::nullopt;  // the numbers themselves may
    }
    for (std::size_t at = 0; at < plan.places.size(); ++at) {
        const Copies::Copy* copy = copy_of(plan.tables[at], *plan.tables[at]);
        if (copy == nullptr) {
            return std::nullopt;
        }
        plan.places[at].numbers = reinterpret_cast<const std::int32_t*>(copy->bytes.get());
    }
    return Pattern{&plan, std::get<Deferred>(value).repeats, 0, 0, largest};
}

std::vector<Encoder::Pattern> Encoder::patterns_of(const std::vector<const Plaintext*>& values,
                                                   const std::vector<double>& scales,
                                                   std::size_t limbs, std::vector<Made>& made,
                                                   HeldCopies& held) {
    std::vector<Pattern> patterns(values.size());
    made.resize(values.size());
    each_of(values.size(), [&](std::size_t at) { made[at].plan = plan_for(*values[at]); });
    std::vector<std::size_t> left;
    {
        const std::lock_guard<std::mutex> alone(mutex_);
        for (std::size_t at = 0; at < values.size(); ++at) {
            const std::optional<Pattern> found =
                made[at].plan ? gathered(*values[at], *made[at].plan, scales[at], limbs, held)
                              : std::nullopt;
            if (found) {
                patterns[at] = *found;
            } else {
                left.push_back(at);
            }
        }
    }
    each_of(left.size(), [&](std::size_t at) {
        patterns[left[at]] = pattern_of(*values[left[at]], made[left[at]]);
    });
    return patterns;
}

}  // namespace atlasc::ckks
