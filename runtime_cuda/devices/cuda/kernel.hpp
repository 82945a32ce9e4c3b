// Kernels as function objects: one call of `operator()` for each index below a count.
#pragma once

#include <cstddef>

#include "devices/cuda/cuda.hpp"

namespace atlasc::ckks {

template <typename Function>
__global__ void each(Function function, std::size_t count) {
    const std::size_t at = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) {
        function(at);
    }
}

/// Runs function(0), ..., function(count - 1) on the stream; `name` is for messages. Throws Error.
template <typename Function>
void launch(std::size_t count, const Function& function, const char* name) {
    constexpr unsigned threads = 256;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>((count + threads - 1) / threads));
    config.blockDim = dim3(threads);
    config.stream = stream();
    check(cudaLaunchKernelEx(&config, each<Function>, function, count), name);
}

}  // namespace atlasc::ckks

#include "devices/cuda/rotated_products.hpp"
