#include "ring.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "atlasc/base/numbers.hpp"

namespace atlasc::sim {
namespace {

using Complex = std::complex<double>;

/// sum over k of x[k] exp(sign 2 pi i j k / size) for every j, in place; size is a power of two.
void transform(ComplexVector& x, double sign) {
    const std::size_t size = x.size();
    for (std::size_t at = 1, reversed = 0; at < size; ++at) {
        std::size_t bit = size >> 1;
        for (; reversed & bit; bit >>= 1) {
            reversed ^= bit;
        }
        reversed ^= bit;
        if (at < reversed) {
            std::swap(x[at], x[reversed]);
        }
    }
    for (std::size_t length = 2; length <= size; length *= 2) {
        const std::size_t half = length / 2;
        ComplexVector roots(half);
        for (std::size_t k = 0; k < half; ++k) {
            const auto turn = static_cast<double>(k) / static_cast<double>(length);
            roots[k] = std::polar(1.0, sign * 2.0 * pi * turn);
        }
        for (std::size_t start = 0; start < size; start += length) {
            for (std::size_t k = 0; k < half; ++k) {
                const Complex low = x[start + k];
                const Complex high = x[start + half + k] * roots[k];
                x[start + k] = low + high;
                x[start + half + k] = low - high;
            }
        }
    }
}

/// Calls use(slot, 5^slot modulo 2N) for every slot.
template <typename Use>
void for_each_root(std::size_t slots, Use use) {
    std::size_t power = 1;
    for (std::size_t slot = 0; slot < slots; ++slot) {
        use(slot, power);
        power = power * 5 % (4 * slots);
    }
}

}  // namespace

std::vector<double> polynomial_of(const ComplexVector& slots) {
    const std::size_t degree = 2 * slots.size();
    ComplexVector spectrum(2 * degree);
    for_each_root(slots.size(), [&](std::size_t slot, std::size_t power) {
        spectrum[power] = slots[slot];
        spectrum[2 * degree - power] = std::conj(slots[slot]);
    });
    transform(spectrum, -1.0);
    std::vector<double> polynomial(degree);
    for (std::size_t at = 0; at < degree; ++at) {
        polynomial[at] = spectrum[at].real() / static_cast<double>(degree);
    }
    return polynomial;
}

ComplexVector slots_of(const std::vector<double>& polynomial) {
    ComplexVector values(polynomial.begin(), polynomial.end());
    values.resize(2 * polynomial.size());
    transform(values, 1.0);
    ComplexVector slots(polynomial.size() / 2);
    for_each_root(slots.size(),
                  [&](std::size_t slot, std::size_t power) { slots[slot] = values[power]; });
    return slots;
}

}  // namespace atlasc::sim
