// Bytes that the engine's kernels read and write, by their arguments: each number once, whatever the
// caches do.
#pragma once

#include <algorithm>

#include "ckks/ring/switch_kernels.hpp"
#include "devices/cuda/conversions.hpp"
#include "devices/cuda/key_rows.hpp"
#include "devices/cuda/rotated_products.hpp"
#include "devices/cuda/vectors.hpp"
#include "tests/runtime_cuda/ckks/stand_in/arithmetic.hpp"

namespace atlasc::ckks {

constexpr double word = sizeof(Word);

inline double words(double each, std::size_t count) {
    return each * word * static_cast<double>(count);
}

/// Of a plaintext, a number for each index.
inline double plain(const PlainValues& values) { return std::ldexp(1.0, -values.log_run); }

/// The factors of a square are one operand.
inline double traffic(const Combine& kernel, std::size_t count) {
    std::size_t each = 0;
    for (std::size_t of = 0; of < kernel.sums; ++of) {
        const Combine::Sum& own = kernel.sum[of];
        each += own.parts * (own.accumulate ? 2 : 1);
        for (std::size_t at = own.first_product; at < own.products; ++at) {
            const Combine::Product& product = kernel.product[at];
            each += product.a.words == product.b.words ? 2 : 4;
        }
        for (std::size_t at = own.first_term; at < own.terms; ++at) {
            each += kernel.term[at].parts;
        }
    }
    return words(static_cast<double>(each), count / kernel.sums);
}

inline double traffic(const Lift& kernel, std::size_t count) {
    return words(1, count) + words(1, std::size_t{1} << kernel.log_degree);
}

template <std::size_t size>
double traffic(const Decompose<size>& kernel, std::size_t count) {
    const std::size_t degree = std::size_t{1} << kernel.log_degree;
    double bytes = 0;
    for (std::size_t at = 0; at < count / degree; ++at) {
        const std::size_t own = kernel.of[at].block.size;
        bytes += words(static_cast<double>(2 * own + kernel.limbs + kernel.size_p), degree);
    }
    return bytes;
}

template <std::size_t size>
double traffic(const Remainder<size>& kernel, std::size_t count) {
    return words(static_cast<double>(size + kernel.limbs), count);
}

/// Of a key, for the digits that it multiplies.
inline double key(const InnerProduct& kernel, std::size_t count) {
    double bytes = 0;
    const std::size_t limbs = kernel.limbs + kernel.size_p;
    for (std::size_t limb = 0; kernel.digits != 0 && limb < limbs; ++limb) {
        const std::size_t of_key =
            limb < kernel.limbs ? limb : kernel.packing.limbs + limb - kernel.limbs;
        const double bits = static_cast<double>(kernel.packing.bits(of_key));
        bytes += words(static_cast<double>(kernel.digits) * 2 * bits / 64, count / limbs);
    }
    return bytes;
}

/// What the product of digits and a key, with addends, reads.
inline double operands(const InnerProduct& kernel, std::size_t count) {
    const std::size_t limbs = kernel.limbs + kernel.size_p;
    const double bytes = words(static_cast<double>(kernel.digits), count) + key(kernel, count);
    const double parts = kernel.addends.second == nullptr ? 1 : 2;
    const std::size_t added = std::min(kernel.addends.limbs, limbs);
    return bytes + (kernel.addends.first == nullptr ? 0 : words(parts, count / limbs * added));
}

inline double traffic(const InnerProduct& kernel, std::size_t count) {
    return words(kernel.accumulate ? 4 : 2, count) + operands(kernel, count);
}

inline double traffic(const HoistedProducts& kernel, std::size_t count) {
    double bytes = 0;
    for (std::size_t one = 0; one < kernel.count; ++one) {
        const InnerProduct& product = kernel.of[one];
        bytes += one == 0 ? traffic(product, count) : words(2, count) + key(product, count);
    }
    return bytes;
}

inline double traffic(const InnerProducts& kernel, std::size_t count) {
    double bytes = words(kernel.accumulate ? 4 : 2, count);
    for (std::size_t term = 0; term < kernel.count; ++term) {
        bytes += operands(kernel.terms[term], count);
    }
    return bytes;
}

/// A key that several products have is read once.
inline double traffic(const EachProduct& products, std::size_t count) {
    double bytes = 0;
    for (std::size_t at = 0; at < products.count; ++at) {
        const InnerProduct& one = products.of[at];
        const bool again = std::any_of(products.of, products.of + at, [&](const auto& other) {
            return other.key_words == one.key_words;
        });
        bytes += traffic(one, count) - (again ? key(one, count) : 0);
    }
    return bytes;
}

inline double traffic(const SumOfEach& products, std::size_t count) {
    return traffic(products.sum, count);
}

/// And the nodes of the last pass forwards, and of the first one backwards.
template <typename Products>
double traffic(const KeyRows<Products>& kernel, std::size_t) {
    const std::size_t count = kernel.products.places();
    const std::size_t values = kernel.products.values() << kernel.products.log_degree();
    const std::size_t back = kernel.products.values() < ~std::size_t{0} ? count - values : 0;
    return words(1, count + back) + traffic(kernel.products, count);
}

/// Babies and plaintexts are read once, and sums are written once in each turn.
template <int bits>
double traffic(const RotatedTiles<bits>& tiles, std::size_t blocks) {
    const RotatedProducts& kernel = tiles.kernel;
    const std::size_t count = blocks * tiles.tile;
    double bytes = words(2 * static_cast<double>(kernel.sums * (2 * tiles.turns() - 1)), count);
    for (std::size_t baby = 0; baby < kernel.count; ++baby) {
        bytes += operands(kernel.babies[baby], count);
    }
    for (std::size_t at = 0; at < kernel.sums * kernel.count; ++at) {
        const PlainValues& values = kernel.plains[at];
        bytes += values.words == nullptr ? 0 : words(plain(values), count);
    }
    return bytes;
}

inline double traffic(const SumOfProducts& kernel, std::size_t count) {
    double each = kernel.accumulate ? 2 : 1;
    for (std::size_t term = 0; term < kernel.count; ++term) {
        each += 1 + plain(kernel.terms[term].plain);
    }
    return words(each, count);
}

inline double traffic(const Round& kernel, std::size_t count) {
    return words(static_cast<double>(1 + kernel.extended), count);
}

template <std::size_t most>
double traffic(const Rounds<most>& kernel, std::size_t count) {
    return traffic(kernel.of[0], count);
}

/// Numbers are read and written, and nodes are read where parts lie together: those of a limb once,
/// whatever the polynomials are that share them.
template <bool forwards, Parts parts>
double traffic(const Pass<ResidueVectors<forwards>, forwards, parts>& pass, std::size_t) {
    const Limbs& limbs = pass.field.limbs;
    std::size_t active = limbs.polynomials * limbs.copies * limbs.count;
    for (std::size_t at = 0; at < limbs.polynomials; ++at) {
        active -= limbs.end[at] - limbs.begin[at];
    }
    double each = 2 * static_cast<double>(active);
    each += pass.columns ? 0 : static_cast<double>(limbs.count);
    each += pass.field.ends ? static_cast<double>(active) : 0;
    return words(each, std::size_t{1} << pass.log_size);
}

template <std::uint32_t at_once>
double traffic(const Conversions<at_once>& kernel, std::size_t) {
    const Limbs& limbs = kernel.field.limbs;
    double numbers = 0;
    for (std::size_t at = 0; at < limbs.polynomials; ++at) {
        numbers += active(limbs, at, kernel.field.log_degree);
        numbers += std::ldexp(static_cast<double>(limbs.blocks[at].size), kernel.field.log_degree);
    }
    return word * numbers;
}

template <bool forwards, Parts parts>
double traffic(const Pass<ComplexVectors<forwards>, forwards, parts>& pass, std::size_t blocks) {
    return words(4, blocks * pass.in_block);
}

}  // namespace atlasc::ckks
