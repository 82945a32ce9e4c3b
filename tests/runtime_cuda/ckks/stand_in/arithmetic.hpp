// What the engine's kernels compute, by their arguments: the numbers that decide how long a launch takes
// beside its bytes (benchmarks/engine/kernel_seconds.py).
#pragma once

#include <algorithm>

#include "ckks/ring/switch_kernels.hpp"
#include "devices/cuda/conversions.hpp"
#include "devices/cuda/key_rows.hpp"
#include "devices/cuda/rotated_products.hpp"
#include "devices/cuda/vectors.hpp"

namespace atlasc::ckks {

using stand_in::Arithmetic;

/// Products of digits and both parts of a key, at so many places.
inline double key_products(const InnerProduct& kernel, std::size_t count) {
    return 2 * static_cast<double>(kernel.digits) * static_cast<double>(count);
}

inline Arithmetic arithmetic(const InnerProduct& kernel, std::size_t count) {
    return {0, 0, key_products(kernel, count), 0, 0};
}

inline Arithmetic arithmetic(const HoistedProducts& kernel, std::size_t count) {
    return {0, 0, static_cast<double>(kernel.count) * key_products(kernel.of[0], count), 0, 0};
}

inline Arithmetic arithmetic(const InnerProducts& kernel, std::size_t count) {
    double products = 0;
    for (std::size_t term = 0; term < kernel.count; ++term) {
        products += key_products(kernel.terms[term], count);
    }
    return {0, 0, products, 0, 0};
}

template <std::size_t size>
Arithmetic arithmetic(const Remainder<size>& kernel, std::size_t count) {
    return {0, 0, static_cast<double>((size + 1) * kernel.limbs * count), 0, 0};
}

/// Times that a thread waits for plaintexts which are not in its block's memory.
template <int bits>
std::size_t gathered(const RotatedTiles<bits>& tiles) {
    const RotatedProducts& kernel = tiles.kernel;
    const std::size_t warps = tiles.threads / tiles.tile;
    const std::size_t row = kernel.sums <= warps ? 1 : tiles.short_row;
    const std::size_t babies = tiles.ahead / row;
    const std::size_t sums = (kernel.sums + warps * row - 1) / (warps * row);
    return kernel.runs ? 0 : sums * ((kernel.count + babies - 1) / babies);
}

/// Zeros are multiplied too.
template <int bits>
Arithmetic arithmetic(const RotatedTiles<bits>& tiles, std::size_t blocks) {
    const RotatedProducts& kernel = tiles.kernel;
    const std::size_t count = blocks * tiles.tile;
    double products = 0;
    for (std::size_t baby = 0; baby < kernel.count; ++baby) {
        products += key_products(kernel.babies[baby], count);
    }
    return {0, 0, products, 2.0 * static_cast<double>(kernel.sums * kernel.count * count),
            static_cast<double>(blocks * gathered(tiles))};
}

/// Numbers of the limbs of a polynomial that are not left as they are.
inline double active(const Limbs& limbs, std::size_t polynomial, int log_size) {
    const std::size_t skipped = limbs.end[polynomial] - limbs.begin[polynomial];
    return std::ldexp(static_cast<double>(limbs.copies * limbs.count - skipped), log_size);
}

/// Each residue that is read is multiplied for each limb, and a quotient.
template <std::uint32_t at_once>
Arithmetic arithmetic(const Conversions<at_once>& kernel, std::size_t) {
    const Limbs& limbs = kernel.field.limbs;
    double passed = 0;
    double products = 0;
    for (std::size_t at = 0; at < limbs.polynomials; ++at) {
        const double numbers = active(limbs, at, kernel.field.log_degree);
        passed += numbers;
        products += numbers * static_cast<double>(limbs.blocks[at].size + 1);
    }
    return {passed, 0, products, 0, 0};
}

/// The end of a division multiplies twice.
template <bool forwards, Parts parts>
Arithmetic arithmetic(const Pass<ResidueVectors<forwards>, forwards, parts>& pass, std::size_t) {
    const Limbs& limbs = pass.field.limbs;
    double passed = 0;
    for (std::size_t at = 0; at < limbs.polynomials; ++at) {
        passed += active(limbs, at, pass.log_size);
    }
    const double products = pass.field.ends ? 2 * passed : 0;
    // Long vectors take two passes, and short ones all stages in one.
    passed *= parts == Parts::vectors ? 2 : 1;
    return {forwards ? passed : 0, forwards ? 0 : passed, products, 0, 0};
}

/// The last pass forwards of digits that are not the polynomial itself, and the first one backwards of
/// what a division needs.
template <typename Products>
Arithmetic arithmetic(const KeyRows<Products>& kernel, std::size_t) {
    const Products& all = kernel.products;
    const auto places = static_cast<double>(all.places());
    double forwards = 0;
    double products = 0;
    for (std::uint32_t result = 0; result < all.results(); ++result) {
        for (std::uint32_t term = 0; term < all.terms(); ++term) {
            const InnerProduct& one = all.term(result, term);
            const std::size_t whole = one.own == nullptr ? 0 : one.limbs << one.log_degree;
            forwards += static_cast<double>(one.digits) * places;
            forwards -= one.digits == 0 ? 0 : static_cast<double>(whole);
            products += key_products(one, all.places());
        }
    }
    const std::size_t values = all.values() << all.log_degree();
    const std::size_t back = all.values() < ~std::size_t{0} ? all.places() - values : 0;
    return {forwards, 2.0 * static_cast<double>(all.results() * back), products, 0, 0};
}

template <bool forwards, Parts parts>
Arithmetic arithmetic(const Pass<ComplexVectors<forwards>, forwards, parts>& pass,
                      std::size_t blocks) {
    const double parts_of = 2.0 * static_cast<double>(blocks * pass.in_block);
    return {forwards ? parts_of : 0, forwards ? 0 : parts_of, 0, 0, 0};
}

}  // namespace atlasc::ckks
