// Kernels for which this device has a faster way than one element after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ckks/keys/sampling.hpp"
#include "ckks/ring/rotated_products.hpp"
#include "ckks/ring/switch_kernels.hpp"

namespace atlasc::ckks {

// Each does what `launch` of any function object does. Limbs modulo primes below 2^50 are computed
// several numbers at a time where the processor has AVX-512 IFMA, or AVX2 with FMA.
void launch(std::size_t count, const Combine& kernel, const char* name);
void launch(std::size_t count, const TimesPolynomial& kernel, const char* name);
void launch(std::size_t count, const Divide& kernel, const char* name);
void launch(std::size_t count, const Lift& kernel, const char* name);
void launch(std::size_t count, const InnerProduct& kernel, const char* name);
void launch(std::size_t count, const InnerProducts& kernel, const char* name);
void launch(std::size_t count, const SumOfProducts& kernel, const char* name);
void launch(std::size_t count, const RotatedProducts& kernel, const char* name);

void launch(std::size_t count, const Round& kernel, const char* name);
void launch(std::size_t count, const Uniform& kernel, const char* name);
void launch(std::size_t count, const ErrorResidues& kernel, const char* name);

template <std::size_t most>
void launch(std::size_t count, const Rounds<most>& kernel, const char* name) {
    for (std::size_t at = 0; at < count / kernel.size; ++at) {
        launch(kernel.size, kernel.of[at], name);
    }
}

/// Where each value comes from in the transform of m(X^galois). Made for each key switch, of whose
/// time it is a hundredth: kept ones would have no bound.
std::vector<std::uint32_t> permutation(int log_degree, std::uint32_t galois);

/// The same of `Decompose` and `Remainder` of any size.
struct Conversion {
    int log_degree;
    const Prime* primes;
    std::size_t all;
    BlockConstants block;
    const Word* residues;      ///< [size of the block][N]
    const Word* values;        ///< of the polynomial; null where no limb is copied from it
    Word* out;
    std::size_t limbs;         ///< of Q
    std::size_t extended;      ///< limbs of the result
    std::size_t size_q;
};
void convert(const Conversion& conversion);

template <std::size_t size>
void launch(std::size_t count, const Decompose<size>& kernel, const char*) {
    for (std::size_t at = 0; at < count >> kernel.log_degree; ++at) {
        const auto& digit = kernel.of[at];
        convert({kernel.log_degree, kernel.primes, kernel.all, digit.block,
                 digit.coefficients + (digit.block.first << kernel.log_degree), digit.values,
                 digit.out, kernel.limbs, kernel.limbs + kernel.size_p, kernel.size_q});
    }
}

template <std::size_t size>
void launch(std::size_t count, const Remainder<size>& kernel, const char*) {
    for (std::size_t part = 0; part < count >> kernel.log_degree; ++part) {
        convert({kernel.log_degree, kernel.primes, kernel.all, kernel.block,
                 kernel.coefficients + ((part * size) << kernel.log_degree), nullptr,
                 kernel.out + ((part * kernel.limbs) << kernel.log_degree), kernel.limbs,
                 kernel.limbs, kernel.all});
    }
}

}  // namespace atlasc::ckks
