// What the engine uses of Phantom's fft.h: names and signatures, in our own words.
#pragma once

#include <cuComplex.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

class DCKKSEncoderInfo {
public:
    DCKKSEncoderInfo(std::size_t coeff_count, const cudaStream_t& stream);
    DCKKSEncoderInfo(const DCKKSEncoderInfo&) = delete;
    ~DCKKSEncoderInfo();

    cuDoubleComplex* in();         ///< [slots]
    cuDoubleComplex* twiddle();    ///< [2 coeff_count], roots of unity
    std::uint32_t* mul_group();    ///< [slots / 2], powers of 5

private:
    cuDoubleComplex* in_;
    cuDoubleComplex* twiddle_;
    std::uint32_t* mul_group_;
};

void special_fft_forward(DCKKSEncoderInfo& gp, std::size_t log_n, const cudaStream_t& stream);
void special_fft_backward(DCKKSEncoderInfo& gp, std::size_t log_n, double scalar,
                          const cudaStream_t& stream);
