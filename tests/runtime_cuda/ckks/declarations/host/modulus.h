// What the engine uses of Phantom's host/modulus.h: names and signatures, in our own words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace phantom::arith {

class Modulus {
public:
    Modulus(std::uint64_t value = 0);

    std::uint64_t value() const noexcept { return value_; }
    /// floor(2^128 / value) in two words, the lower one first; the remainder.
    const std::array<std::uint64_t, 3>& const_ratio() const noexcept { return ratio_; }

private:
    std::uint64_t value_;
    std::array<std::uint64_t, 3> ratio_{};
};

class CoeffModulus {
public:
    static std::vector<Modulus> Create(std::size_t poly_modulus_degree,
                                       const std::vector<int>& bit_sizes);
};

}  // namespace phantom::arith
