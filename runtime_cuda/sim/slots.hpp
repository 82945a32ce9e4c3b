// What a ciphertext of the simulation holds.
#pragma once

#include <complex>
#include <utility>

#include "atlasc/base/error.hpp"
#include "atlasc/engine.hpp"

namespace atlasc::sim {

using Complex = std::complex<double>;

struct Slots final : CiphertextData {
    Slots(ComplexVector values, int level) : values(std::move(values)), level(level) {}

    ComplexVector values;
    int level;
};

/// Throws Error for a ciphertext of another engine.
inline const Slots& of(const Ciphertext& x) {
    const auto* slots = dynamic_cast<const Slots*>(x.get());
    if (slots == nullptr) {
        throw Error("a ciphertext of another engine was given to the simulation");
    }
    return *slots;
}

}  // namespace atlasc::sim
