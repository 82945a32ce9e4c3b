// What the engine uses of Phantom's host/ntt.h: names and signatures, in our own words.
#pragma once

#include <cstdint>
#include <vector>

#include "modulus.h"

namespace phantom::arith {

class NTT {
public:
    NTT(int coeff_count_power, const Modulus& modulus);

    std::uint64_t get_root() const { return root_; }
    const std::vector<std::uint64_t>& get_from_root_powers() const { return powers_; }
    const std::vector<std::uint64_t>& get_from_root_powers_shoup() const { return powers_; }
    const std::vector<std::uint64_t>& get_from_inv_root_powers() const { return inverse_powers_; }
    const std::vector<std::uint64_t>& get_from_inv_root_powers_shoup() const {
        return inverse_powers_;
    }
    const std::uint64_t& inv_degree_modulo() const { return inverse_degree_; }
    const std::uint64_t& inv_degree_modulo_shoup() const { return inverse_degree_; }

private:
    std::uint64_t root_ = 0;
    std::uint64_t inverse_degree_ = 0;
    std::vector<std::uint64_t> powers_;
    std::vector<std::uint64_t> inverse_powers_;
};

}  // namespace phantom::arith
