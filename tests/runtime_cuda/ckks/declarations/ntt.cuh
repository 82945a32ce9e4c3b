// What the engine uses of Phantom's ntt.cuh: names and signatures, in our own words.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

class DModulus {
public:
    /// A modulus and the two words of floor(2^128 / modulus), the lower one first.
    DModulus(std::uint64_t value, std::uint64_t ratio0, std::uint64_t ratio1);

    std::uint64_t value;
};

class DNTTTable {
public:
    DNTTTable() = default;
    DNTTTable(const DNTTTable&) = delete;

    void init(std::uint64_t n, std::uint64_t size, const cudaStream_t& stream);
    void set(const DModulus* modulus, const std::uint64_t* twiddle,
             const std::uint64_t* twiddle_shoup, const std::uint64_t* itwiddle,
             const std::uint64_t* itwiddle_shoup, std::uint64_t n_inv_mod_q,
             std::uint64_t n_inv_mod_q_shoup, std::uint64_t index,
             const cudaStream_t& stream) const;

    /// Tables of one modulus, where a stand-in runs.
    struct Table {
        std::uint64_t modulus = 0;
        std::uint64_t n_inverse = 0;
        std::vector<std::uint64_t> powers;
        std::vector<std::uint64_t> inverse_powers;
    };
    mutable std::vector<Table> tables;
    std::uint64_t n = 0;
};

void nwt_2d_radix8_forward_inplace(std::uint64_t* inout, const DNTTTable& ntt_tables,
                                   std::size_t coeff_modulus_size, std::size_t start_modulus_idx,
                                   const cudaStream_t& stream);

void nwt_2d_radix8_forward_inplace_include_special_mod_exclude_range(
    std::uint64_t* inout, const DNTTTable& ntt_tables, std::size_t coeff_modulus_size,
    std::size_t start_modulus_idx, std::size_t size_QP, std::size_t size_P,
    std::size_t excluded_range_start, std::size_t excluded_range_end, const cudaStream_t& stream);

void nwt_2d_radix8_backward_inplace(std::uint64_t* inout, const DNTTTable& ntt_tables,
                                    std::size_t coeff_modulus_size, std::size_t start_modulus_idx,
                                    const cudaStream_t& stream);

void nwt_2d_radix8_backward(std::uint64_t* out, const std::uint64_t* in,
                            const DNTTTable& ntt_tables, std::size_t coeff_modulus_size,
                            std::size_t start_modulus_idx, const cudaStream_t& stream);
