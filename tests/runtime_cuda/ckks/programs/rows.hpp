// Random residues for tests of kernels, and what prints that one is wrong.
#pragma once

#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "ckks/ring/arithmetic.hpp"

namespace atlasc::ckks {

using Row = std::vector<Word>;

inline std::mt19937_64 generator(7);

inline Row random_row(std::size_t size, Word bound) {
    Row row(size);
    std::generate(row.begin(), row.end(), [&] { return generator() % bound; });
    // The ends of the range, where a bound that is too low shows.
    for (std::size_t at = 0; at < size / 4; ++at) {
        row[at] = at % 2 == 0 ? bound - 1 : 0;
    }
    return row;
}

inline void expect(bool right, const std::string& what) {
    if (!right) {
        std::cout << what << '\n';
    }
}

/// A limb for each prime from `first` on.
inline Row limbs(const std::vector<Prime>& primes, std::size_t first, std::size_t count,
          std::size_t degree) {
    Row all;
    for (std::size_t at = first; at < first + count; ++at) {
        const Row row = random_row(degree, primes[at].value);
        all.insert(all.end(), row.begin(), row.end());
    }
    return all;
}

}  // namespace atlasc::ckks
