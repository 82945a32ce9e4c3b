#include "sim_engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "atlasc/base/error.hpp"
#include "atlasc/base/numbers.hpp"
#include "ring.hpp"
#include "slots.hpp"

namespace atlasc::sim {
namespace {

constexpr double range_tolerance = 1e-6;  // a value of exactly the range passes with its rounding
constexpr double log_capacity = 19.0;     // log2 of the largest value that fits at level 0

[[noreturn]] void refuse(const char* primitive, const std::string& why,
                         const std::string& remedy = "") {
    throw Error(std::string(primitive) + " is impossible", why, remedy);
}

/// Without the checks for infinities that the operator of std::complex makes.
Complex times(Complex a, Complex b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
Complex times(Complex a, double b) { return {a.real() * b, a.imag() * b}; }

template <typename Function>
Ciphertext each(const Ciphertext& x, int level, Function function) {
    ComplexVector values = of(x).values;
    for (Complex& value : values) {
        value = function(value);
    }
    return std::make_shared<Slots>(std::move(values), level);
}

template <typename Function>
Ciphertext each(const Ciphertext& x, const Ciphertext& y, int level, Function function) {
    ComplexVector values = of(x).values;
    const ComplexVector& others = of(y).values;
    for (std::size_t slot = 0; slot < values.size(); ++slot) {
        values[slot] = function(values[slot], others[slot]);
    }
    return std::make_shared<Slots>(std::move(values), level);
}

/// Calls use(slot, factor) for every slot of a plaintext of any kind.
template <typename Use>
void each_factor(const Plaintext& value, std::size_t size, const char* primitive, Use use) {
    std::size_t repeats = 1;
    const auto runs = [&](const auto& numbers) {
        const std::size_t run = run_of(numbers.size() * repeats, size, primitive);
        const std::size_t period = numbers.size() * run;
        for (std::size_t first = 0; first < size; first += period) {
            for (std::size_t at = 0; run == 1 && at < period; ++at) {  // several at once
                use(first + at, numbers[at]);
            }
            for (std::size_t slot = 0; run > 1 && slot < period; slot += run) {
                const auto number = numbers[slot / run];
                for (std::size_t next = slot; next < slot + run; ++next) {
                    use(first + next, number);
                }
            }
        }
    };
    if (const double* number = std::get_if<double>(&value)) {
        runs(Vector{*number});
    } else if (const Vector* vector = std::get_if<Vector>(&value)) {
        runs(*vector);
    } else if (const Deferred* deferred = std::get_if<Deferred>(&value)) {
        repeats = deferred->repeats;
        std::visit(runs, deferred->make());
    } else {
        runs(std::get<ComplexVector>(value));
    }
}

/// The level below a product's operands.
int below(int level, const char* primitive) {
    if (level < 1) {
        refuse(primitive, "the operand is at level 0: no multiplication is left",
               "place a bootstrap before it, or choose parameters with more levels");
    }
    return level - 1;
}

int lower_of(const Ciphertext& x, const Ciphertext& y) { return std::min(of(x).level, of(y).level); }

double largest(const ComplexVector& values) {
    double most = 0.0;
    for (const Complex& value : values) {
        if (std::isnan(value.real())) {
            return value.real();
        }
        most = std::max(most, std::abs(value.real()));
    }
    return most;
}

/// Refuses slots that a decryption at their level reads as other numbers: a coefficient beyond half of
/// the modulus wraps around.
void require_fit(const char* primitive, const Slots& slots, const std::string& remedy) {
    const double bits = log_capacity + log_scale * slots.level;
    const double most = largest(slots.values);
    if (!(most < std::exp2(std::min(bits, 1000.0)))) {
        refuse(primitive,
               "a slot holds " + short_text(most, 6) + ", but at level " +
                   std::to_string(slots.level) + " only values below 2^" +
                   std::to_string(std::lround(bits)) + " fit",
               remedy);
    }
}

/// The mean of all blocks of `period` slots, in each of them.
ComplexVector repeated(const ComplexVector& values, std::size_t period) {
    if (period == values.size()) {
        return values;
    }
    ComplexVector result(values.size());
    const double share = static_cast<double>(period) / static_cast<double>(values.size());
    for (std::size_t slot = 0; slot < values.size(); ++slot) {
        result[slot % period] += share * values[slot];
    }
    for (std::size_t slot = period; slot < values.size(); ++slot) {
        result[slot] = result[slot % period];
    }
    return result;
}

}  // namespace

SimEngine::SimEngine(Parameters parameters, Reach rotations, std::string key, Holds holds,
                     const Noise& noise, double bootstrap_range)
    : parameters_(std::move(parameters)),
      rotations_(std::move(rotations)),
      key_(std::move(key)),
      holds_(holds),
      noise_(noise),
      bootstrap_range_(bootstrap_range),
      random_(noise.seed) {}

Ciphertext SimEngine::noisy(const Ciphertext& x, double deviation) {
    if (deviation == 0.0) {
        return x;
    }
    const Vector errors = drawn(2 * slots(), deviation);
    const double* error = errors.data();
    return each(x, of(x).level, [&error](Complex value) {
        error += 2;
        return value + Complex(error[-2], error[-1]);
    });
}

Vector SimEngine::drawn(std::size_t count, double deviation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::normal_distribution<double> error(0.0, deviation);
    Vector errors(count);
    std::generate(errors.begin(), errors.end(), [&] { return error(random_); });
    return errors;
}

Ciphertext SimEngine::bootstrapped(ComplexVector values, std::size_t period, int level) {
    check_range(values);
    values = repeated(values, period);
    if (noise_.bootstrap_cubic != 0.0) {
        std::vector<double> polynomial = polynomial_of(values);
        for (double& coefficient : polynomial) {
            coefficient -= noise_.bootstrap_cubic * coefficient * coefficient * coefficient;
        }
        values = slots_of(polynomial);
    }
    if (noise_.bootstrap != 0.0) {
        const Vector errors = drawn(period, noise_.bootstrap);
        for (std::size_t slot = 0; slot < values.size(); ++slot) {
            values[slot] += errors[slot % period];
        }
    }
    return std::make_shared<Slots>(std::move(values), level);
}

Ciphertext SimEngine::encrypt(const Vector& vector, int level) {
    if (holds_ == Holds::evaluation || level < 0 || level > parameters_.max_level || vector.size() != slots()) {
        refuse("encrypt", "it needs a client's key, a level of the parameters, and all slots");
    }
    const auto values =
        std::make_shared<Slots>(ComplexVector(vector.begin(), vector.end()), level);
    require_fit("encrypt", *values,
                "scale the input down: it is far larger than any that a program is made for");
    return noisy(values, noise_.fresh);
}

Vector SimEngine::decrypt(const Ciphertext& x) {
    const Slots& slots = of(x);
    if (holds_ != Holds::secret) {
        refuse("decrypt", "there is no secret key here");
    }
    require_fit("decrypt", slots,
                "a polynomial was evaluated outside its range: calibrate on more inputs");
    const Ciphertext settled = noisy(x, noise_.settle);
    Vector result;
    result.reserve(slots.values.size());
    for (const Complex& value : of(settled).values) {
        result.push_back(value.real());
    }
    return result;
}

int SimEngine::level(const Ciphertext& x) const { return of(x).level; }

Ciphertext SimEngine::add(const Ciphertext& left, const Ciphertext& right) {
    return each(left, right, lower_of(left, right), [](Complex a, Complex b) { return a + b; });
}

Ciphertext SimEngine::sub(const Ciphertext& left, const Ciphertext& right) {
    return each(left, right, lower_of(left, right), [](Complex a, Complex b) { return a - b; });
}

Ciphertext SimEngine::negate(const Ciphertext& x) {
    return each(x, of(x).level, [](Complex a) { return -a; });
}

Ciphertext SimEngine::add_plain(const Ciphertext& x, const Plaintext& value) {
    ComplexVector values = of(x).values;
    each_factor(value, values.size(), "add_plain",
                [&values](std::size_t slot, auto number) { values[slot] += number; });
    return std::make_shared<Slots>(std::move(values), of(x).level);
}

Ciphertext SimEngine::mul(const Ciphertext& left, const Ciphertext& right) {
    return dot({left}, {right});
}

Ciphertext SimEngine::square(const Ciphertext& x) {
    const int level = below(of(x).level, "square");
    return noisy(each(factor(x), level, [](Complex a) { return times(a, a); }), noise_.relinearize);
}

Ciphertext SimEngine::dot(const Ciphertexts& lefts, const Ciphertexts& rights) {
    if (lefts.empty() || lefts.size() != rights.size()) {
        refuse("dot", "it takes one pair of ciphertexts or more");
    }
    Ciphertext total;
    for (std::size_t at = 0; at < lefts.size(); ++at) {
        const int level = below(lower_of(lefts[at], rights[at]), "a product");
        const Ciphertext left = factor(lefts[at]);
        Ciphertext term = each(left, factor(rights[at]), level, [](Complex a, Complex b) { return times(a, b); });
        total = total == nullptr ? std::move(term) : add(total, term);
    }
    return noisy(total, noise_.relinearize);
}

Ciphertext SimEngine::mul_plain(const Ciphertext& x, const Plaintext& value) {
    return dot_plain({x}, {value});
}

Ciphertext SimEngine::dot_plain(const Ciphertexts& xs, const std::vector<Plaintext>& values) {
    if (xs.empty() || xs.size() != values.size()) {
        refuse("dot_plain", "it takes one pair of a ciphertext and a plaintext or more");
    }
    ComplexVector total(slots());
    int level = of(xs[0]).level;
    for (std::size_t at = 0; at < xs.size(); ++at) {
        level = std::min(level, of(xs[at]).level);
        below(level, "mul_plain");
        const Ciphertext operand = factor(xs[at]);
        const ComplexVector& slots = of(operand).values;
        each_factor(encoded(values[at]), total.size(), "mul_plain",
                    [&](std::size_t slot, auto number) {
                        total[slot] += times(slots[slot], number);
                    });
    }
    return std::make_shared<Slots>(std::move(total), level - 1);
}

Plaintext SimEngine::encoded(const Plaintext& value) {
    if (noise_.encode == 0.0) {
        return value;
    }
    if (const double* number = std::get_if<double>(&value)) {
        // Rounded, which counts where slots are large.
        return std::round(*number * std::exp2(log_scale)) / std::exp2(log_scale);
    }
    const Vector errors = drawn(2 * slots(), noise_.encode);
    ComplexVector result(slots());
    each_factor(value, slots(), "mul_plain", [&](std::size_t slot, auto number) {
        result[slot] = number + Complex(errors[2 * slot], errors[2 * slot + 1]);
    });
    return result;
}

Ciphertext SimEngine::times_i(const Ciphertext& x) {
    return each(x, of(x).level, [](Complex a) { return Complex(-a.imag(), a.real()); });
}

Ciphertext SimEngine::conjugate(const Ciphertext& x) {
    return noisy(each(x, of(x).level, [](Complex a) { return std::conj(a); }),
                 noise_.key_switch_at(of(x).level));
}

Ciphertext SimEngine::rotate(const Ciphertext& x, std::size_t amount) {
    const Slots& source = of(x);
    if (amount == 0) {
        return x;
    }
    if (rotations_) {
        const auto key = rotations_->find(amount);
        const int reach = key == rotations_->end() ? -1 : key->second;
        if (reach < source.level) {
            refuse("rotate",
                   "amount " + std::to_string(amount) + " at level " +
                       std::to_string(source.level) + ": " +
                       (reach < 0 ? "there is no key"
                                  : "its key reaches only level " + std::to_string(reach)),
                   "make keys with this program's client");
        }
    }
    ComplexVector values(source.values.begin() + static_cast<std::ptrdiff_t>(amount),
                         source.values.end());
    values.insert(values.end(), source.values.begin(),
                  source.values.begin() + static_cast<std::ptrdiff_t>(amount));
    return noisy(std::make_shared<Slots>(std::move(values), source.level),
                 noise_.key_switch_at(source.level));
}

Ciphertexts SimEngine::rotate_many(const Ciphertext& x, const std::vector<std::size_t>& amounts) {
    Ciphertexts result;
    for (const std::size_t amount : amounts) {
        result.push_back(rotate(x, amount));
    }
    return result;
}

Ciphertext SimEngine::drop_to(const Ciphertext& x, int level) {
    const Slots& source = of(x);
    if (level < 0 || level > source.level) {
        refuse("drop_to", "a ciphertext at level " + std::to_string(source.level) +
                              " has no level " + std::to_string(level));
    }
    return level == source.level ? x : std::make_shared<Slots>(source.values, level);
}

Ciphertexts SimEngine::bootstrap_many(const Ciphertexts& xs, std::size_t period, int level) {
    if (!parameters_.bootstrap_level) {
        refuse("bootstrap", "these parameters do not allow a bootstrap");
    }
    if (level < 1 || level > *parameters_.bootstrap_level) {
        refuse("bootstrap", "it ends at a level from 1 to " +
                                std::to_string(*parameters_.bootstrap_level) + ", not at " +
                                std::to_string(level));
    }
    if (!bootstraps_.empty()) {
        for (const Ciphertext& x : xs) {
            check_range(of(x).values);
        }
        Ciphertexts result = bootstraps_.refreshed(*this, xs, period);
        for (Ciphertext& x : result) {
            x = drop_to(x, level);
        }
        return result;
    }
    // Two become the parts of a complex one, so that an imaginary part of one spoils the other. The
    // imaginary part of one alone is lost.
    const bool pairs = parameters_.bootstrap_batch == 2;
    Ciphertexts result;
    for (std::size_t at = 0; at < xs.size(); ++at) {
        const std::size_t partner = at ^ 1U;
        const bool paired = pairs && partner < xs.size();
        const ComplexVector& others = of(xs[paired ? partner : at]).values;
        ComplexVector values = of(xs[at]).values;
        for (std::size_t slot = 0; slot < values.size(); ++slot) {
            const double spoilt = paired ? others[slot].imag() : 0.0;
            values[slot] = values[slot].real() + (at % 2 == 0 ? -spoilt : spoilt);
        }
        result.push_back(bootstrapped(std::move(values), period, level));
    }
    return result;
}

void SimEngine::bootstrap_by(std::shared_ptr<const Record> record) {
    const char* wanted = std::getenv("ATLASC_SIM_BOOTSTRAP");
    if (wanted == nullptr) {
        return;
    }
    if (std::string(wanted) != "algorithm") {
        throw Error("ATLASC_SIM_BOOTSTRAP is neither unset nor algorithm",
                    "it is \"" + std::string(wanted) + "\"");
    }
    if (!parameters_.bootstraps()) {
        throw Error("the program does not bootstrap by the runtime's algorithm",
                    "its parameters name no scales of it",
                    "compile with --target phantom, or unset ATLASC_SIM_BOOTSTRAP");
    }
    bootstraps_.add(std::move(record));
}

void SimEngine::check_range(const ComplexVector& values) const {
    const double most = largest(values);
    if (!(most <= bootstrap_range_ * (1 + range_tolerance))) {
        const std::string range = short_text(bootstrap_range_, 6);
        refuse("bootstrap",
               "a slot holds " + short_text(most, 6) + ", outside [-" + range + ", " + range +
                   "]: the result would be garbage",
               "compile with inputs like this one, or scale the value down before the bootstrap");
    }
}

}  // namespace atlasc::sim
