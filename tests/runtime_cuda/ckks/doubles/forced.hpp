// Rings whose transforms compute in integers or in doubles, whatever the GPU has.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <vector>

#include "ckks/ring/chain.hpp"

namespace atlasc::ckks {

/// Primes of so many bits, the largest ones; some are special. The levels have one each.
inline Chain chain(int log_degree, const std::vector<int>& bits, std::size_t special_primes = 2) {
    const std::vector<int> special(special_primes, bits.front());
    const auto levels = static_cast<int>(bits.size()) - 1;
    return chain_of({std::size_t{1} << (log_degree - 1), levels, std::nullopt, 1,
                     atlasc::Moduli{bits, special, 40, {}}});
}

/// The arithmetic of what is made meanwhile.
struct Forced {
    explicit Forced(const char* arithmetic) { setenv("ATLASC_GPU", arithmetic, 1); }
    Forced(const Forced&) = delete;
    Forced& operator=(const Forced&) = delete;
    ~Forced() { unsetenv("ATLASC_GPU"); }
};

/// Of an integral number of either sign.
inline Word residue(double x, const Prime& q) {
    const auto size = reduce(static_cast<Word>(std::abs(x)), q);
    return x < 0 ? negate(size, q) : size;
}

}  // namespace atlasc::ckks
