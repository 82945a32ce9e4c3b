// Kernels whose threads work together: in a block they share memory, phase by phase.
#pragma once

#include <cstddef>

#include "devices/cuda/cuda.hpp"

namespace atlasc::ckks {

/// The memory of a block. No two threads may touch one number in one phase, unless both read it.
template <typename Number>
struct Shared {
    Number* numbers;

    ATLASC_DEVICE Number get(std::size_t at) const { return numbers[at]; }
    ATLASC_DEVICE void set(std::size_t at, const Number& number) const { numbers[at] = number; }
};

/// `function(phase, block, thread, shared)` for all phases; no thread begins one before all have
/// ended the one before. `Function::resident` blocks share a multiprocessor, which bounds their registers.
template <typename Function>
__global__ void __launch_bounds__(Function::threads, Function::resident)
    in_blocks(Function function) {
    __shared__ typename Function::Number numbers[Function::shared];
    const Shared<typename Function::Number> shared{numbers};
    for (int phase = 0; phase < function.phases(); ++phase) {
        function(phase, blockIdx.x, threadIdx.x, shared);
        __syncthreads();
    }
}

/// Runs a function on so many blocks of `Function::threads` threads. Throws Error.
template <typename Function>
void launch_blocks(std::size_t blocks, const Function& function, const char* name) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(Function::threads);
    config.stream = stream();
    check(cudaLaunchKernelEx(&config, in_blocks<Function>, function), name);
}

}  // namespace atlasc::ckks
