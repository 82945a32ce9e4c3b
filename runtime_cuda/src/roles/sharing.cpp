#include "atlasc/sharing.hpp"

#include <algorithm>
#include <cmath>

#include "atlasc/base/error.hpp"
#include "atlasc/base/files.hpp"
#include "atlasc/base/numbers.hpp"

namespace atlasc {
namespace {

// Bounds and magnitudes come from files. Within these no power of ten overflows.
constexpr double least_number = 1e-100;
constexpr double greatest_number = 1e100;

bool is_bounded(const Output& output) {
    return output.noise && *output.noise >= least_number && *output.noise <= greatest_number &&
           output.magnitude && *output.magnitude >= 0.0 && *output.magnitude <= greatest_number;
}

/// Numbers of an output's answers to `count` inputs.
double element_count(const Output& output, std::size_t count) {
    double numbers = static_cast<double>(count);
    for (std::size_t axis = 1; axis < output.shape.size(); ++axis) {
        numbers *= static_cast<double>(output.shape[axis]);
    }
    return numbers;
}

Flood flood_of(double deviation, double magnitude) {
    if (!(deviation <= greatest_number)) {  // of absurdly many bits
        return {deviation, 0, 0};
    }
    const int decimals = -static_cast<int>(std::ceil(std::log10(deviation)));
    const int most = static_cast<int>(std::floor(std::log10(std::max(magnitude, least_number))));
    return {deviation, decimals, std::max(0, most + 1 + decimals)};
}

/// Uniform in (0, 1): 52 random bits and a half. With 53 the greatest would be rounded to 1, and the
/// least could be 0.
double uniform_of(std::uint64_t word) {
    return std::ldexp(static_cast<double>(word >> 12) + 0.5, -52);
}

}  // namespace

Floods floods(const Interface& interface, std::size_t count, const Sharing& sharing) {
    double numbers = 0.0;
    for (const Output& output : interface.outputs) {
        if (!is_bounded(output)) {
            return {};
        }
        numbers += element_count(output, count);
    }
    const double factor = std::sqrt(12.0 * static_cast<double>(sharing.shares) * numbers) *
                          std::exp2(static_cast<double>(sharing.bits) / 2.0);
    Floods found;
    for (const Output& output : interface.outputs) {
        found[output.name] = flood_of(factor * *output.noise, *output.magnitude);
    }
    return found;
}

Floods require_digits(const Interface& interface, std::size_t count, const Sharing& sharing) {
    if (sharing.bits < Sharing::least_bits || sharing.shares < 1) {
        throw Error(std::to_string(sharing.bits) + " bits for " + std::to_string(sharing.shares) +
                        " answers protect no key",
                    "",
                    "give at least " + std::to_string(Sharing::least_bits) + " bits and 1 answer");
    }
    Floods found = floods(interface, count, sharing);
    if (found.empty()) {
        throw Error("nothing is known of the errors of this program",
                    "its outputs carry no bound",
                    "compile it again with this atlasc; or share a decision, not its numbers");
    }
    for (const Output& output : interface.outputs) {  // in the order of the program
        const Flood& flood = found.at(output.name);
        if (flood.digits == 0) {
            throw Error("no digit of " + output.name + " may be passed on",
                        "to hide the secret key it needs noise of " +
                            short_text(flood.deviation, 2) +
                            ", as large as the answer: bootstraps and deep polynomials make large "
                            "errors",
                        "share a decision alone, the class for example; or fewer numbers together, "
                        "or answers of a program with smaller errors (--max-levels)");
        }
    }
    return found;
}

Tensors flooded(Tensors exact, const Floods& floods) {
    for (auto& [name, tensor] : exact) {
        const Flood& flood = floods.at(name);
        const Vector noise = secure_normal(tensor.values.size());
        for (std::size_t at = 0; at < noise.size(); ++at) {
            double& number = tensor.values[at];
            // Rounding also removes the last bits of the sum, which could tell where in a grid of
            // doubles the noise fell (Mironov, CCS 2012).
            number = rounded(number + flood.deviation * noise[at], flood.decimals);
        }
    }
    return exact;
}

Vector secure_normal(std::size_t count) {
    std::vector<std::uint64_t> words(2 * count);
    random_bytes(words.data(), words.size() * sizeof(std::uint64_t));
    Vector numbers;
    for (std::size_t at = 0; at < words.size(); at += 2) {
        numbers.push_back(normal_number(words[at], words[at + 1]));
    }
    return numbers;
}

double normal_number(std::uint64_t first, std::uint64_t second) {
    // The radius and the angle of two independent normal numbers, by Box and Muller ("A note on the
    // generation of random normal deviates", Annals of Mathematical Statistics 29, 1958). This is exact,
    // where an inverse distribution would be a fit; log and cos err in the last bit or two. The greatest
    // radius is sqrt(106 log 2) = 8.57. A normal number exceeds it with a probability of 1e-17, which is
    // nothing beside the advantage that is allowed.
    return std::sqrt(-2.0 * std::log(uniform_of(first))) * std::cos(2.0 * pi * uniform_of(second));
}

double rounded(double number, int decimals) {
    // Dividing by a power of ten is exact to the last bit; multiplying by 0.01 is not.
    const double power = std::pow(10.0, std::abs(decimals));
    const double steps = std::nearbyint(decimals < 0 ? number / power : number * power);
    return decimals < 0 ? steps * power : steps / power;
}

}  // namespace atlasc
